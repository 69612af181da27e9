"""Instructions by the pipe that takes them, for every stage of the kernels: what the cost model weighs.

Written by `python benchmarks/instructions.py` from the kernels as NVRTC compiles them; shares of what the same stage
takes in all on sm_90 with pairs of half. A word of 32 bits that a lane loads or stores counts once under `memory`.
"""

from __future__ import annotations

from typing import Dict, Tuple

from polar_pipeline.cuda.model.device import Slots

#: (stage, in pairs of half, compute capability) -> shares of its issue slots.
SHARES: Dict[Tuple[str, bool, int], Slots] = {
    ("adaptive edges", True, 72): Slots(1.03, 0.56, 0.03, 0.21, 0.00, 0.21),  # 322
    ("adaptive edges", True, 87): Slots(0.99, 0.56, 0.03, 0.17, 0.00, 0.21),  # 308
    ("adaptive edges", True, 90): Slots(1.00, 0.56, 0.01, 0.20, 0.00, 0.21),  # 312
    ("adaptive edges", False, 72): Slots(1.24, 0.00, 0.93, 0.03, 0.04, 0.43),  # 388
    ("adaptive edges", False, 87): Slots(1.24, 0.00, 0.93, 0.03, 0.04, 0.42),  # 386
    ("adaptive edges", False, 90): Slots(1.25, 0.00, 0.93, 0.04, 0.04, 0.42),  # 389
    ("adaptive gradients", True, 72): Slots(1.00, 0.76, 0.03, 0.07, 0.00, 0.12),  # 358
    ("adaptive gradients", True, 87): Slots(1.00, 0.76, 0.03, 0.07, 0.00, 0.12),  # 356
    ("adaptive gradients", True, 90): Slots(1.00, 0.76, 0.00, 0.10, 0.00, 0.12),  # 357
    ("adaptive gradients", False, 72): Slots(1.67, 0.00, 1.52, 0.02, 0.00, 0.22),  # 595
    ("adaptive gradients", False, 87): Slots(1.67, 0.00, 1.52, 0.02, 0.00, 0.22),  # 595
    ("adaptive gradients", False, 90): Slots(1.68, 0.00, 1.52, 0.03, 0.00, 0.22),  # 600
    ("adaptive slide", True, 72): Slots(1.03, 0.80, 0.02, 0.11, 0.00, 0.08),  # 1320
    ("adaptive slide", True, 87): Slots(1.00, 0.80, 0.02, 0.08, 0.00, 0.08),  # 1277
    ("adaptive slide", True, 90): Slots(1.00, 0.80, 0.00, 0.10, 0.00, 0.08),  # 1277
    ("adaptive slide", False, 72): Slots(1.63, 0.00, 1.35, 0.09, 0.06, 0.24),  # 2085
    ("adaptive slide", False, 87): Slots(1.63, 0.00, 1.35, 0.09, 0.06, 0.24),  # 2083
    ("adaptive slide", False, 90): Slots(1.64, 0.00, 1.35, 0.09, 0.06, 0.24),  # 2091
    ("co-site", True, 72): Slots(0.94, 0.57, 0.03, 0.23, 0.00, 0.46),  # 66
    ("co-site", True, 87): Slots(0.96, 0.57, 0.04, 0.23, 0.00, 0.46),  # 67
    ("co-site", True, 90): Slots(1.00, 0.57, 0.04, 0.26, 0.00, 0.46),  # 70
    ("co-site", False, 72): Slots(1.34, 0.00, 1.06, 0.06, 0.00, 0.57),  # 94
    ("co-site", False, 87): Slots(1.30, 0.00, 1.06, 0.01, 0.00, 0.57),  # 91
    ("co-site", False, 90): Slots(1.36, 0.00, 1.06, 0.06, 0.00, 0.57),  # 95
    ("color bilinear", True, 72): Slots(1.17, 0.42, 0.12, 0.33, 0.00, 0.24),  # 105
    ("color bilinear", True, 87): Slots(0.97, 0.42, 0.12, 0.16, 0.00, 0.24),  # 87
    ("color bilinear", True, 90): Slots(1.00, 0.42, 0.12, 0.18, 0.00, 0.24),  # 90
    ("color bilinear", False, 72): Slots(1.38, 0.00, 0.57, 0.57, 0.00, 0.49),  # 124
    ("color bilinear", False, 87): Slots(1.38, 0.00, 0.59, 0.54, 0.00, 0.49),  # 124
    ("color bilinear", False, 90): Slots(1.41, 0.00, 0.57, 0.59, 0.00, 0.49),  # 127
    ("color mhc", True, 72): Slots(1.00, 0.61, 0.16, 0.10, 0.00, 0.31),  # 403
    ("color mhc", True, 87): Slots(0.98, 0.61, 0.15, 0.09, 0.00, 0.32),  # 394
    ("color mhc", True, 90): Slots(1.00, 0.62, 0.09, 0.16, 0.00, 0.32),  # 404
    ("color mhc", False, 72): Slots(1.67, 0.00, 1.27, 0.19, 0.00, 0.60),  # 673
    ("color mhc", False, 87): Slots(1.66, 0.00, 1.27, 0.19, 0.00, 0.59),  # 671
    ("color mhc", False, 90): Slots(1.69, 0.00, 1.28, 0.22, 0.00, 0.59),  # 683
    ("color weighted", True, 72): Slots(1.08, 0.44, 0.10, 0.23, 0.02, 0.28),  # 202
    ("color weighted", True, 87): Slots(0.97, 0.44, 0.10, 0.14, 0.01, 0.28),  # 181
    ("color weighted", True, 90): Slots(1.00, 0.44, 0.04, 0.23, 0.01, 0.28),  # 187
    ("color weighted", False, 72): Slots(1.43, 0.00, 0.72, 0.41, 0.01, 0.57),  # 268
    ("color weighted", False, 87): Slots(1.42, 0.01, 0.72, 0.41, 0.01, 0.57),  # 265
    ("color weighted", False, 90): Slots(1.45, 0.00, 0.72, 0.43, 0.01, 0.57),  # 271
    ("color_half", True, 72): Slots(0.90, 0.33, 0.10, 0.32, 0.04, 0.11),  # 1137
    ("color_half", True, 87): Slots(0.91, 0.33, 0.10, 0.33, 0.02, 0.11),  # 1151
    ("color_half", True, 90): Slots(1.00, 0.34, 0.08, 0.39, 0.02, 0.11),  # 1269
    ("color_half angles", True, 72): Slots(0.92, 0.25, 0.17, 0.35, 0.00, 0.16),  # 461
    ("color_half angles", True, 87): Slots(0.96, 0.25, 0.18, 0.35, 0.00, 0.16),  # 479
    ("color_half angles", True, 90): Slots(1.00, 0.25, 0.19, 0.35, 0.00, 0.18),  # 499
    ("color_strip", True, 72): Slots(1.02, 0.32, 0.15, 0.37, 0.02, 0.16),  # 1298
    ("color_strip", True, 87): Slots(1.02, 0.32, 0.15, 0.37, 0.01, 0.16),  # 1296
    ("color_strip", True, 90): Slots(1.00, 0.32, 0.10, 0.40, 0.01, 0.17),  # 1276
    ("color_strip", False, 72): Slots(1.54, 0.04, 0.65, 0.59, 0.03, 0.34),  # 1959
    ("color_strip", False, 87): Slots(1.46, 0.04, 0.65, 0.57, 0.01, 0.27),  # 1860
    ("color_strip", False, 90): Slots(1.43, 0.04, 0.64, 0.55, 0.01, 0.28),  # 1825
    ("color_strip angles", True, 72): Slots(1.01, 0.27, 0.14, 0.40, 0.00, 0.20),  # 1170
    ("color_strip angles", True, 87): Slots(1.00, 0.27, 0.13, 0.40, 0.00, 0.20),  # 1167
    ("color_strip angles", True, 90): Slots(1.00, 0.27, 0.10, 0.41, 0.00, 0.21),  # 1162
    ("color_strip angles", False, 72): Slots(1.51, 0.00, 0.63, 0.61, 0.01, 0.39),  # 1758
    ("color_strip angles", False, 87): Slots(1.48, 0.01, 0.63, 0.62, 0.00, 0.31),  # 1717
    ("color_strip angles", False, 90): Slots(1.44, 0.01, 0.61, 0.60, 0.00, 0.33),  # 1674
    ("load 12p", True, 72): Slots(1.01, 0.00, 0.33, 0.42, 0.08, 0.05),  # 119
    ("load 12p", True, 87): Slots(0.92, 0.00, 0.29, 0.45, 0.01, 0.05),  # 108
    ("load 12p", True, 90): Slots(1.00, 0.00, 0.25, 0.50, 0.01, 0.09),  # 118
    ("load 12p", False, 72): Slots(1.03, 0.00, 0.34, 0.44, 0.05, 0.08),  # 121
    ("load 12p", False, 87): Slots(0.89, 0.00, 0.30, 0.44, 0.01, 0.06),  # 105
    ("load 12p", False, 90): Slots(1.02, 0.01, 0.26, 0.50, 0.01, 0.13),  # 120
    ("load 12p calibrated", True, 72): Slots(1.02, 0.00, 0.37, 0.52, 0.03, 0.06),  # 335
    ("load 12p calibrated", True, 87): Slots(1.02, 0.00, 0.38, 0.53, 0.00, 0.06),  # 334
    ("load 12p calibrated", True, 90): Slots(1.00, 0.00, 0.34, 0.48, 0.00, 0.12),  # 328
    ("load 12p calibrated", False, 72): Slots(1.00, 0.00, 0.38, 0.51, 0.00, 0.08),  # 328
    ("load 12p calibrated", False, 87): Slots(1.00, 0.00, 0.38, 0.52, 0.00, 0.07),  # 327
    ("load 12p calibrated", False, 90): Slots(0.98, 0.00, 0.33, 0.48, 0.00, 0.13),  # 323
    ("load 12packed", True, 72): Slots(1.01, 0.00, 0.33, 0.44, 0.08, 0.05),  # 125
    ("load 12packed", True, 87): Slots(0.90, 0.00, 0.28, 0.46, 0.01, 0.04),  # 112
    ("load 12packed", True, 90): Slots(1.00, 0.00, 0.26, 0.51, 0.01, 0.09),  # 124
    ("load 12packed", False, 72): Slots(1.02, 0.00, 0.33, 0.46, 0.05, 0.07),  # 127
    ("load 12packed", False, 87): Slots(0.90, 0.00, 0.30, 0.45, 0.01, 0.06),  # 111
    ("load 12packed", False, 90): Slots(0.96, 0.01, 0.26, 0.47, 0.01, 0.11),  # 119
    ("load 12packed calibrated", True, 72): Slots(1.01, 0.00, 0.36, 0.52, 0.03, 0.06),  # 347
    ("load 12packed calibrated", True, 87): Slots(1.01, 0.00, 0.38, 0.53, 0.00, 0.06),  # 347
    ("load 12packed calibrated", True, 90): Slots(1.00, 0.00, 0.34, 0.48, 0.00, 0.11),  # 344
    ("load 12packed calibrated", False, 72): Slots(0.99, 0.00, 0.38, 0.51, 0.00, 0.07),  # 340
    ("load 12packed calibrated", False, 87): Slots(0.99, 0.00, 0.37, 0.52, 0.00, 0.07),  # 339
    ("load 12packed calibrated", False, 90): Slots(0.98, 0.00, 0.33, 0.47, 0.00, 0.12),  # 336
    ("load u16", True, 72): Slots(0.91, 0.00, 0.25, 0.41, 0.09, 0.03),  # 106
    ("load u16", True, 87): Slots(0.91, 0.00, 0.27, 0.47, 0.01, 0.03),  # 106
    ("load u16", True, 90): Slots(1.00, 0.01, 0.23, 0.51, 0.01, 0.09),  # 116
    ("load u16", False, 72): Slots(0.85, 0.00, 0.24, 0.39, 0.05, 0.05),  # 99
    ("load u16", False, 87): Slots(0.91, 0.00, 0.31, 0.44, 0.01, 0.05),  # 105
    ("load u16", False, 90): Slots(1.00, 0.00, 0.26, 0.49, 0.01, 0.11),  # 116
    ("load u16 calibrated", True, 72): Slots(1.00, 0.00, 0.36, 0.52, 0.03, 0.06),  # 326
    ("load u16 calibrated", True, 87): Slots(1.01, 0.00, 0.37, 0.55, 0.00, 0.05),  # 329
    ("load u16 calibrated", True, 90): Slots(1.00, 0.00, 0.33, 0.50, 0.00, 0.11),  # 325
    ("load u16 calibrated", False, 72): Slots(0.98, 0.00, 0.37, 0.52, 0.00, 0.07),  # 320
    ("load u16 calibrated", False, 87): Slots(0.99, 0.00, 0.36, 0.54, 0.00, 0.06),  # 322
    ("load u16 calibrated", False, 90): Slots(0.97, 0.00, 0.32, 0.48, 0.00, 0.13),  # 315
    ("load u8", True, 72): Slots(0.95, 0.07, 0.22, 0.50, 0.01, 0.10),  # 137
    ("load u8", True, 87): Slots(0.91, 0.07, 0.22, 0.49, 0.00, 0.10),  # 131
    ("load u8", True, 90): Slots(1.00, 0.07, 0.22, 0.53, 0.00, 0.10),  # 144
    ("load u8", False, 72): Slots(1.03, 0.00, 0.33, 0.40, 0.14, 0.17),  # 148
    ("load u8", False, 87): Slots(1.03, 0.00, 0.35, 0.40, 0.14, 0.17),  # 148
    ("load u8", False, 90): Slots(1.10, 0.01, 0.33, 0.45, 0.14, 0.17),  # 158
    ("load u8 calibrated", True, 72): Slots(1.02, 0.00, 0.41, 0.48, 0.03, 0.05),  # 318
    ("load u8 calibrated", True, 87): Slots(1.02, 0.00, 0.41, 0.50, 0.00, 0.05),  # 320
    ("load u8 calibrated", True, 90): Slots(1.00, 0.00, 0.35, 0.45, 0.00, 0.11),  # 313
    ("load u8 calibrated", False, 72): Slots(0.96, 0.00, 0.41, 0.46, 0.00, 0.07),  # 302
    ("load u8 calibrated", False, 87): Slots(1.00, 0.00, 0.40, 0.49, 0.00, 0.06),  # 313
    ("load u8 calibrated", False, 90): Slots(0.98, 0.00, 0.35, 0.43, 0.00, 0.12),  # 306
    ("mono adaptive", True, 72): Slots(1.12, 0.70, 0.05, 0.26, 0.00, 0.17),  # 299
    ("mono adaptive", True, 87): Slots(0.98, 0.70, 0.01, 0.15, 0.00, 0.17),  # 261
    ("mono adaptive", True, 90): Slots(1.00, 0.70, 0.01, 0.17, 0.00, 0.17),  # 266
    ("mono adaptive", False, 72): Slots(1.40, 0.00, 0.91, 0.29, 0.08, 0.28),  # 372
    ("mono adaptive", False, 87): Slots(1.34, 0.00, 0.91, 0.23, 0.08, 0.28),  # 356
    ("mono adaptive", False, 90): Slots(1.35, 0.00, 0.92, 0.24, 0.08, 0.28),  # 359
    ("mono bilinear", True, 72): Slots(1.19, 0.33, 0.26, 0.38, 0.00, 0.29),  # 50
    ("mono bilinear", True, 87): Slots(1.00, 0.33, 0.07, 0.38, 0.00, 0.29),  # 42
    ("mono bilinear", True, 90): Slots(1.00, 0.33, 0.07, 0.38, 0.00, 0.29),  # 42
    ("mono bilinear", False, 72): Slots(1.31, 0.00, 1.07, 0.02, 0.00, 0.43),  # 55
    ("mono bilinear", False, 87): Slots(0.95, 0.00, 0.69, 0.05, 0.00, 0.43),  # 40
    ("mono bilinear", False, 90): Slots(0.95, 0.00, 0.69, 0.05, 0.00, 0.43),  # 40
    ("mono gradient", True, 72): Slots(1.28, 0.59, 0.15, 0.38, 0.00, 0.23),  # 91
    ("mono gradient", True, 87): Slots(1.00, 0.59, 0.04, 0.21, 0.00, 0.23),  # 71
    ("mono gradient", True, 90): Slots(1.00, 0.59, 0.04, 0.21, 0.00, 0.23),  # 71
    ("mono gradient", False, 72): Slots(1.41, 0.00, 0.92, 0.34, 0.00, 0.39),  # 100
    ("mono gradient", False, 87): Slots(1.20, 0.00, 0.69, 0.35, 0.00, 0.39),  # 85
    ("mono gradient", False, 90): Slots(1.20, 0.00, 0.69, 0.35, 0.00, 0.39),  # 85
    ("mono_adaptive angles", True, 72): Slots(1.07, 0.72, 0.09, 0.14, 0.00, 0.16),  # 527
    ("mono_adaptive angles", True, 87): Slots(1.00, 0.72, 0.10, 0.07, 0.00, 0.16),  # 494
    ("mono_adaptive angles", True, 90): Slots(1.00, 0.72, 0.00, 0.16, 0.00, 0.16),  # 492
    ("mono_adaptive edges", True, 72): Slots(1.00, 0.55, 0.18, 0.07, 0.00, 0.36),  # 215
    ("mono_adaptive edges", True, 87): Slots(1.00, 0.54, 0.19, 0.07, 0.00, 0.36),  # 215
    ("mono_adaptive edges", True, 90): Slots(1.00, 0.54, 0.00, 0.25, 0.00, 0.36),  # 214
    ("mono_adaptive gradients", True, 72): Slots(0.97, 0.66, 0.17, 0.06, 0.00, 0.13),  # 374
    ("mono_adaptive gradients", True, 87): Slots(1.00, 0.65, 0.21, 0.06, 0.00, 0.13),  # 387
    ("mono_adaptive gradients", True, 90): Slots(1.00, 0.65, 0.01, 0.26, 0.00, 0.13),  # 386
    ("mono_adaptive load", True, 72): Slots(0.96, 0.11, 0.20, 0.49, 0.00, 0.15),  # 188
    ("mono_adaptive load", True, 87): Slots(0.95, 0.10, 0.20, 0.50, 0.00, 0.15),  # 186
    ("mono_adaptive load", True, 90): Slots(1.00, 0.12, 0.09, 0.59, 0.00, 0.17),  # 195
    ("mono_adaptive products", True, 72): Slots(1.03, 0.20, 0.26, 0.35, 0.10, 0.10),  # 226
    ("mono_adaptive products", True, 87): Slots(0.98, 0.19, 0.28, 0.36, 0.06, 0.09),  # 215
    ("mono_adaptive products", True, 90): Slots(1.00, 0.21, 0.15, 0.46, 0.06, 0.10),  # 219
    ("mono_adaptive slide", True, 72): Slots(1.02, 0.73, 0.13, 0.06, 0.00, 0.14),  # 732
    ("mono_adaptive slide", True, 87): Slots(1.01, 0.73, 0.14, 0.04, 0.00, 0.14),  # 728
    ("mono_adaptive slide", True, 90): Slots(1.00, 0.73, 0.00, 0.17, 0.00, 0.14),  # 719
    ("mono_full", True, 72): Slots(0.99, 0.35, 0.19, 0.27, 0.15, 0.04),  # 1192
    ("mono_full", True, 87): Slots(0.98, 0.35, 0.19, 0.29, 0.09, 0.04),  # 1177
    ("mono_full", True, 90): Slots(1.00, 0.35, 0.17, 0.32, 0.09, 0.05),  # 1198
    ("mono_half", True, 72): Slots(1.00, 0.16, 0.30, 0.39, 0.09, 0.08),  # 954
    ("mono_half", True, 87): Slots(1.01, 0.15, 0.31, 0.40, 0.05, 0.08),  # 960
    ("mono_half", True, 90): Slots(1.00, 0.15, 0.29, 0.41, 0.05, 0.08),  # 952
    ("mono_half_bytes", True, 72): Slots(1.02, 0.08, 0.29, 0.49, 0.11, 0.06),  # 903
    ("mono_half_bytes", True, 87): Slots(1.01, 0.07, 0.29, 0.49, 0.07, 0.05),  # 893
    ("mono_half_bytes", True, 90): Slots(1.00, 0.07, 0.30, 0.49, 0.07, 0.06),  # 883
    ("mono_half_calibrated", True, 72): Slots(1.00, 0.33, 0.07, 0.48, 0.00, 0.16),  # 769
    ("mono_half_calibrated", True, 87): Slots(1.05, 0.33, 0.10, 0.48, 0.00, 0.14),  # 807
    ("mono_half_calibrated", True, 90): Slots(1.00, 0.33, 0.07, 0.47, 0.00, 0.17),  # 771
    ("mono_half_calibrated", False, 72): Slots(1.34, 0.00, 0.69, 0.58, 0.00, 0.11),  # 1033
    ("mono_half_calibrated", False, 87): Slots(1.36, 0.00, 0.66, 0.59, 0.00, 0.11),  # 1050
    ("mono_half_calibrated", False, 90): Slots(1.37, 0.01, 0.65, 0.60, 0.00, 0.13),  # 1053
    ("products", True, 72): Slots(1.02, 0.13, 0.39, 0.37, 0.06, 0.02),  # 353
    ("products", True, 87): Slots(0.99, 0.12, 0.40, 0.37, 0.04, 0.02),  # 341
    ("products", True, 90): Slots(1.00, 0.12, 0.40, 0.37, 0.04, 0.02),  # 346
    ("products", False, 72): Slots(0.99, 0.00, 0.51, 0.38, 0.04, 0.02),  # 344
    ("products", False, 87): Slots(0.97, 0.00, 0.50, 0.37, 0.04, 0.02),  # 335
    ("products", False, 90): Slots(0.98, 0.00, 0.49, 0.37, 0.04, 0.03),  # 338
    ("ssim registers uint16", True, 72): Slots(0.98, 0.00, 0.58, 0.29, 0.00, 0.11),  # 1251
    ("ssim registers uint16", True, 87): Slots(1.02, 0.00, 0.58, 0.29, 0.00, 0.11),  # 1292
    ("ssim registers uint16", True, 90): Slots(1.00, 0.00, 0.58, 0.29, 0.00, 0.11),  # 1272
    ("rectified samples", True, 72): Slots(0.88, 0.44, 0.10, 0.06, 0.00, 0.47),  # 149
    ("rectified samples", True, 87): Slots(0.94, 0.50, 0.10, 0.06, 0.00, 0.47),  # 159
    ("rectified samples", True, 90): Slots(1.00, 0.54, 0.09, 0.08, 0.00, 0.47),  # 169
    ("rectified window", True, 72): Slots(0.98, 0.26, 0.13, 0.43, 0.01, 0.12),  # 351
    ("rectified window", True, 87): Slots(0.93, 0.24, 0.13, 0.39, 0.00, 0.11),  # 331
    ("rectified window", True, 90): Slots(1.00, 0.25, 0.13, 0.43, 0.00, 0.12),  # 357
    ("ssim registers float32", True, 72): Slots(0.99, 0.00, 0.59, 0.28, 0.00, 0.11),  # 1211
    ("ssim registers float32", True, 87): Slots(1.01, 0.00, 0.59, 0.27, 0.00, 0.11),  # 1228
    ("ssim registers float32", True, 90): Slots(1.00, 0.00, 0.59, 0.27, 0.00, 0.11),  # 1220
    ("ssim registers mosaic", True, 72): Slots(1.01, 0.00, 0.50, 0.38, 0.00, 0.11),  # 1722
    ("ssim registers mosaic", True, 87): Slots(1.02, 0.00, 0.50, 0.38, 0.00, 0.11),  # 1741
    ("ssim registers mosaic", True, 90): Slots(1.00, 0.00, 0.50, 0.37, 0.00, 0.11),  # 1710
    ("ssim tensor uint16", True, 87): Slots(0.99, 0.10, 0.32, 0.33, 0.01, 0.06),  # 1426
    ("ssim tensor uint16", True, 90): Slots(1.00, 0.10, 0.25, 0.39, 0.01, 0.08),  # 1438
    ("thread", True, 72): Slots(0.94, 0.00, 0.27, 0.36, 0.02, 0.03),  # 169
    ("thread", True, 87): Slots(1.01, 0.00, 0.26, 0.36, 0.01, 0.01),  # 181
    ("thread", True, 90): Slots(1.00, 0.00, 0.22, 0.40, 0.01, 0.04),  # 179
    ("thread", False, 72): Slots(0.97, 0.00, 0.26, 0.37, 0.02, 0.03),  # 174
    ("thread", False, 87): Slots(1.07, 0.00, 0.28, 0.39, 0.01, 0.01),  # 192
    ("thread", False, 90): Slots(1.08, 0.00, 0.24, 0.44, 0.01, 0.03),  # 193
    ("transform between", True, 72): Slots(0.97, 0.26, 0.10, 0.35, 0.00, 0.26),  # 166
    ("transform between", True, 87): Slots(0.97, 0.26, 0.10, 0.35, 0.00, 0.26),  # 166
    ("transform between", True, 90): Slots(1.00, 0.26, 0.10, 0.37, 0.00, 0.28),  # 172
    ("transform between", False, 72): Slots(1.42, 0.35, 0.51, 0.31, 0.00, 0.28),  # 245
    ("transform between", False, 87): Slots(1.42, 0.35, 0.51, 0.31, 0.00, 0.28),  # 245
    ("transform between", False, 90): Slots(1.46, 0.35, 0.50, 0.33, 0.00, 0.31),  # 251
    ("transform pixels", True, 72): Slots(1.08, 0.16, 0.33, 0.20, 0.16, 0.21),  # 82
    ("transform pixels", True, 87): Slots(0.97, 0.16, 0.34, 0.25, 0.00, 0.21),  # 74
    ("transform pixels", True, 90): Slots(1.00, 0.16, 0.32, 0.26, 0.00, 0.26),  # 76
    ("transform pixels", False, 72): Slots(0.92, 0.16, 0.32, 0.21, 0.00, 0.26),  # 70
    ("transform pixels", False, 87): Slots(0.91, 0.17, 0.32, 0.20, 0.00, 0.26),  # 69
    ("transform pixels", False, 90): Slots(0.93, 0.16, 0.29, 0.22, 0.00, 0.32),  # 71
}
