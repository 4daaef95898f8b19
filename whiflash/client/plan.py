"""The plan that a server serves as JSON text."""

from __future__ import annotations

import json
from typing import Any

from whiflash.api.v1 import model_service_pb2 as pb


def read_plan(response: pb.GetPlanResponse) -> dict[str, Any]:
    """The plan as a dictionary."""
    plan: dict[str, Any] = json.loads(response.plan_json)
    return plan
