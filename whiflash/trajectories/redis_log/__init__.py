"""Redis Streams: the log that replicas share. Needs the extra `redis`."""

from whiflash.trajectories.redis_log.log import RedisLog

__all__ = ["RedisLog"]
