"""Columns and limits that the kernels and their callers share."""

from __future__ import annotations

import numpy as np

# Columns of `states`. LENGTH: the longest substring; LINK: the state of the longest suffix that
# ends at more places, -1 for the root. COUNT: occurrences. LATEST: position of the token behind
# the latest occurrence that was not the end of its run, 0 for none.
LINK, LENGTH, COUNT, LATEST, TOKEN, TARGET, EXTRA, LAST_EXTRA = range(8)
NUM_STATE_COLUMNS = 8
EDGE_STATE, EDGE_TOKEN, EDGE_TARGET, NEXT_EDGE = range(4)
NUM_EDGE_COLUMNS = 4
# Fields of `head`. LAST: state of the current run so far; VERSION: rises with every change.
NUM_STATES, NUM_EDGES, NUM_TOKENS, LAST, NUM_LINKS, VERSION = range(6)
NUM_HEAD_FIELDS = 6
# Columns of a table of matches, one row per reader: the context length that the match is for, the
# version of the automaton, and how often the context had been exchanged for another.
MATCH_STATE, MATCH_LENGTH, ABSORBED, SEEN_VERSION, SEEN_FORKS = range(5)
NUM_MATCH_COLUMNS = 5

ROOT = 0
UNKNOWN = -1  # a state: the match has at most MATCH_LENGTH tokens, and nobody has looked closer
MAX_WALK_LINKS = 32
MAX_MATCH_TOKENS = 64
MAX_FOLLOWED = 8  # tokens; a match that is further behind is searched anew
MIN_TAIL_TOKENS = 8
MAX_SCANNED = 16  # children looked at per node; the frequent ones are as a rule made early
MAX_CHILDREN = 3  # of them drafted at most
MAX_NODES = 64  # in one draft tree
MAX_SPOTS = 32  # occurrences looked at in a sealed segment, spread evenly over all of them
MAX_MASKED_TRIES = 128  # to find that many where some are masked

# Where a draft comes from. Sources are asked in this order, and the first wins a tie.
CONTEXT, PREDICTION, LIVE, SEALED = range(4)
SOURCE_NAMES = ("context", "prediction", "live", "sealed")
NUM_SOURCES = 4

# A learned probability is kept per source, bucket of matched tokens (upper ends), bucket of the
# share of continuations (lower ends of all but the first; certain once; certain more often), and
# whether the node is the most recent continuation.
LENGTH_BUCKETS = np.searchsorted([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64], range(66)).astype(np.int64)
NUM_LENGTH_BUCKETS = 12
EDGE_SHARES = (0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
NUM_EDGE_BUCKETS = 9
NUM_CELLS = NUM_SOURCES * NUM_LENGTH_BUCKETS * NUM_EDGE_BUCKETS * 2

# Columns of the rows of a lookup, and of a node while a tree grows. FORKS: how often the context
# did not extend the one before it.
READER, TOTAL, FORKS, NODES_LIMIT, DEPTH_LIMIT = range(5)
NUM_ROW_COLUMNS = 5
NODE_STATE, NODE_LENGTH, NODE_ROW, NODE_DEPTH, NODE_TOKEN, NODE_CELL = range(6)
NUM_NODE_FIELDS = 6
# Rows of a drafted tree, int32 [4, MAX_NODES].
DRAFT_TOKEN, PARENT, DEPTH, CELL = range(4)
NUM_NODE_ROWS = 4
# Columns of the children that a node was found to have. CHILD: what stands for the child, 0 once it
# is drafted; CHILD_COUNT: its occurrences.
CHILD_TOKEN, CHILD, IS_LATEST, CHILD_COUNT = range(4)
NUM_CHILD_COLUMNS = 4
# Fields of a row's summary. FIRST_SURVIVAL: per source, of its likeliest first node.
EXPECTED, NUM_DRAFTED, MATCHED, SOURCE, FIRST_SURVIVAL = range(5)
NUM_SUMMARY_FIELDS = FIRST_SURVIVAL + NUM_SOURCES
# Columns of the winners of a batch: the rank of the source of earlier runs with the longest match
# of a row, its length, and the state there, or in a sealed segment how many occurrences were noted.
WINNER, WINNER_LENGTH, WINNER_STATE = range(3)
NUM_WINNER_COLUMNS = 3
NOBODY_WON = -1
# Columns of the likeliest first node of each source, so that all of them can be scored.
FIRST_TOKEN, FIRST_CELL = range(2)
