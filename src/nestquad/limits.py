"""Limits of memory, time and size. They bound the work at a time and do not change answers.

Tuning numbers of methods are not here: they are fields of settings classes.
"""

from __future__ import annotations

# Blocks of evaluations.
# Points of a block of g: each temporary array takes half a megabyte of cache. A longer row is cut
# there at every chunk size, so that sums keep their order.
CHUNK_POINTS = 65_536
MEMORY = 256_000_000  # bytes of points and values of a block, temporary arrays of g included
BLOCK_NUMBERS = MEMORY // 48  # numbers of x and theta in a block, of which g makes six copies
KEPT_EVALUATIONS = 1 << 26  # values of a design that grows while time is left: half a gigabyte
KEPT_MEMORY = 16_000_000  # bytes of freed arrays that stay with the process, half of them
TASK_CHUNKS = 256  # chunks of a task of an executor
TASKS_AHEAD = 3  # tasks for each worker: one running, one waiting, one since they differ

# Seconds.
CHUNK_SECONDS = 0.25  # target duration of a chunk in this thread
TASK_SECONDS = 0.5  # target duration of a task; a tenth of it is worth handing out
POLL_SECONDS = 1.0  # between looks at late workers, or at a Dask cluster
PATIENCE_SECONDS = 10.0  # without a result, before a check whether any worker has begun
BROKEN_POOLS = 3  # process pools in a row that may break before a chunk is finished

# Weights.
DENSE_NODES = 20_000  # nodes of a dense Gram matrix: 3.2 GB
RULE_POINTS = 8_192  # T or N of a nested kernel rule towards a tolerance: the cost is N³
STAIRCASE_POINTS = 2_048  # T or N of multilevel kernel quadrature: a second or two
KERNEL_NUMBERS = 2**22  # kernel values at a time, of several θ or many samples: 32 MB
CACHE_NUMBERS = 2**15  # of several passes over a block, in the fast cache; slower at 2¹³
BLOCK_ROWS = 256  # rows at a time of a Gram matrix, of predictions, of polynomials at least
ROW_GROUP = 16  # rows whose independent points are made together

# Learned models.
PREDICTED_POINTS = 4_096  # points of g that a model predicts at a time
CHOICE_POINTS = 1 << 13  # points that choose penalties
AVERAGE_POINTS = 1 << 15  # θ of a dense average at a time
LATTICE_POINTS = 1 << 17  # θ on copies of a lattice at a time

# Sizes that users may ask for.
GRID_SIZE = 10**9  # T, N and the like: larger ones are slips
BUDGET = 10**15  # evaluations of a method
TABLE_BYTES = 2_000_000_000  # of a file: 10⁷ rows of ten numbers
TABLE_COLUMNS = 20_000  # spreadsheets end at 16,384
PLOT_ROWS = 4_096  # rows of θ that an estimate keeps for plots
