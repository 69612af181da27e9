"""Instructions by the pipe that takes them, for every stage of the kernels: what the cost model weighs.

Written by `python benchmarks/instructions.py` from the kernels as NVRTC compiles them; shares of what the same stage
takes in all on sm_90 with pairs of half. A word of 32 bits that a lane loads or stores counts once under `memory`.
"""

from __future__ import annotations

from typing import Dict, Tuple

from polar_pipeline.cuda.model.device import Slots

#: (stage, in pairs of half, compute capability) -> shares of its issue slots.
SHARES: Dict[Tuple[str, bool, int], Slots] = {
    ("adaptive edges", True, 72): Slots(0.99, 0.53, 0.03, 0.18, 0.00, 0.22),  # 292
    ("adaptive edges", True, 87): Slots(0.99, 0.53, 0.03, 0.18, 0.00, 0.22),  # 291
    ("adaptive edges", True, 90): Slots(1.00, 0.53, 0.01, 0.21, 0.00, 0.22),  # 295
    ("adaptive edges", False, 72): Slots(1.28, 0.00, 0.95, 0.04, 0.04, 0.45),  # 377
    ("adaptive edges", False, 87): Slots(1.27, 0.00, 0.95, 0.03, 0.04, 0.45),  # 375
    ("adaptive edges", False, 90): Slots(1.28, 0.00, 0.95, 0.04, 0.04, 0.45),  # 378
    ("adaptive gradients", True, 72): Slots(1.00, 0.73, 0.05, 0.08, 0.00, 0.12),  # 338
    ("adaptive gradients", True, 87): Slots(0.99, 0.73, 0.04, 0.08, 0.00, 0.12),  # 335
    ("adaptive gradients", True, 90): Slots(1.00, 0.73, 0.00, 0.12, 0.00, 0.12),  # 339
    ("adaptive gradients", False, 72): Slots(1.57, 0.00, 1.41, 0.02, 0.00, 0.24),  # 531
    ("adaptive gradients", False, 87): Slots(1.57, 0.00, 1.41, 0.02, 0.00, 0.24),  # 531
    ("adaptive gradients", False, 90): Slots(1.58, 0.00, 1.41, 0.03, 0.00, 0.24),  # 536
    ("adaptive slide", True, 72): Slots(1.01, 0.77, 0.02, 0.10, 0.00, 0.09),  # 1175
    ("adaptive slide", True, 87): Slots(0.99, 0.77, 0.03, 0.09, 0.00, 0.09),  # 1162
    ("adaptive slide", True, 90): Slots(1.00, 0.77, 0.01, 0.11, 0.00, 0.09),  # 1168
    ("adaptive slide", False, 72): Slots(1.70, 0.00, 1.44, 0.05, 0.05, 0.26),  # 1990
    ("adaptive slide", False, 87): Slots(1.70, 0.00, 1.44, 0.05, 0.05, 0.26),  # 1988
    ("adaptive slide", False, 90): Slots(1.71, 0.00, 1.44, 0.06, 0.05, 0.26),  # 1996
    ("co-site", True, 72): Slots(0.99, 0.57, 0.03, 0.26, 0.00, 0.46),  # 68
    ("co-site", True, 87): Slots(0.97, 0.58, 0.03, 0.25, 0.00, 0.46),  # 67
    ("co-site", True, 90): Slots(1.00, 0.58, 0.03, 0.26, 0.00, 0.46),  # 69
    ("co-site", False, 72): Slots(1.30, 0.00, 1.07, 0.00, 0.00, 0.58),  # 90
    ("co-site", False, 87): Slots(1.32, 0.00, 1.07, 0.01, 0.00, 0.58),  # 91
    ("co-site", False, 90): Slots(1.35, 0.00, 1.06, 0.04, 0.00, 0.58),  # 93
    ("color bilinear", True, 72): Slots(1.17, 0.42, 0.12, 0.33, 0.00, 0.24),  # 105
    ("color bilinear", True, 87): Slots(0.97, 0.42, 0.12, 0.16, 0.00, 0.24),  # 87
    ("color bilinear", True, 90): Slots(1.00, 0.42, 0.12, 0.18, 0.00, 0.24),  # 90
    ("color bilinear", False, 72): Slots(1.38, 0.00, 0.57, 0.57, 0.00, 0.49),  # 124
    ("color bilinear", False, 87): Slots(1.38, 0.00, 0.59, 0.54, 0.00, 0.49),  # 124
    ("color bilinear", False, 90): Slots(1.41, 0.00, 0.57, 0.59, 0.00, 0.49),  # 127
    ("color mhc", True, 72): Slots(0.98, 0.60, 0.16, 0.10, 0.00, 0.31),  # 403
    ("color mhc", True, 87): Slots(0.96, 0.60, 0.14, 0.09, 0.00, 0.31),  # 394
    ("color mhc", True, 90): Slots(1.00, 0.61, 0.10, 0.17, 0.00, 0.31),  # 410
    ("color mhc", False, 72): Slots(1.64, 0.00, 1.25, 0.19, 0.00, 0.59),  # 673
    ("color mhc", False, 87): Slots(1.64, 0.00, 1.25, 0.19, 0.00, 0.59),  # 671
    ("color mhc", False, 90): Slots(1.67, 0.00, 1.26, 0.21, 0.00, 0.59),  # 683
    ("color weighted", True, 72): Slots(1.08, 0.44, 0.10, 0.23, 0.02, 0.28),  # 202
    ("color weighted", True, 87): Slots(0.97, 0.44, 0.10, 0.14, 0.01, 0.28),  # 181
    ("color weighted", True, 90): Slots(1.00, 0.44, 0.04, 0.23, 0.01, 0.28),  # 187
    ("color weighted", False, 72): Slots(1.43, 0.00, 0.72, 0.41, 0.01, 0.57),  # 268
    ("color weighted", False, 87): Slots(1.42, 0.01, 0.72, 0.41, 0.01, 0.57),  # 265
    ("color weighted", False, 90): Slots(1.45, 0.00, 0.72, 0.43, 0.01, 0.57),  # 271
    ("color_strip", True, 72): Slots(1.01, 0.32, 0.15, 0.37, 0.02, 0.16),  # 1290
    ("color_strip", True, 87): Slots(1.02, 0.32, 0.15, 0.37, 0.01, 0.16),  # 1296
    ("color_strip", True, 90): Slots(1.00, 0.32, 0.10, 0.40, 0.01, 0.17),  # 1276
    ("color_strip", False, 72): Slots(1.54, 0.04, 0.65, 0.58, 0.03, 0.34),  # 1959
    ("color_strip", False, 87): Slots(1.46, 0.04, 0.65, 0.57, 0.01, 0.27),  # 1860
    ("color_strip", False, 90): Slots(1.43, 0.04, 0.64, 0.55, 0.01, 0.28),  # 1825
    ("color_strip angles", True, 72): Slots(1.00, 0.27, 0.14, 0.40, 0.00, 0.20),  # 1166
    ("color_strip angles", True, 87): Slots(1.00, 0.27, 0.13, 0.40, 0.00, 0.20),  # 1163
    ("color_strip angles", True, 90): Slots(1.00, 0.27, 0.10, 0.41, 0.00, 0.21),  # 1162
    ("color_strip angles", False, 72): Slots(1.51, 0.00, 0.63, 0.61, 0.01, 0.39),  # 1754
    ("color_strip angles", False, 87): Slots(1.47, 0.01, 0.63, 0.62, 0.00, 0.31),  # 1713
    ("color_strip angles", False, 90): Slots(1.44, 0.01, 0.61, 0.60, 0.00, 0.33),  # 1674
    ("load 12p", True, 72): Slots(1.05, 0.00, 0.35, 0.45, 0.09, 0.05),  # 118
    ("load 12p", True, 87): Slots(1.00, 0.00, 0.35, 0.47, 0.01, 0.04),  # 112
    ("load 12p", True, 90): Slots(1.00, 0.00, 0.26, 0.49, 0.01, 0.10),  # 112
    ("load 12p", False, 72): Slots(0.99, 0.00, 0.34, 0.43, 0.05, 0.07),  # 111
    ("load 12p", False, 87): Slots(0.95, 0.00, 0.30, 0.46, 0.01, 0.06),  # 106
    ("load 12p", False, 90): Slots(1.04, 0.00, 0.27, 0.51, 0.01, 0.12),  # 116
    ("load 12p calibrated", True, 72): Slots(0.94, 0.00, 0.36, 0.44, 0.03, 0.06),  # 311
    ("load 12p calibrated", True, 87): Slots(0.93, 0.00, 0.37, 0.45, 0.00, 0.06),  # 310
    ("load 12p calibrated", True, 90): Slots(1.00, 0.00, 0.34, 0.48, 0.00, 0.11),  # 332
    ("load 12p calibrated", False, 72): Slots(0.90, 0.00, 0.34, 0.45, 0.00, 0.07),  # 298
    ("load 12p calibrated", False, 87): Slots(0.92, 0.00, 0.35, 0.46, 0.00, 0.07),  # 305
    ("load 12p calibrated", False, 90): Slots(0.97, 0.00, 0.32, 0.47, 0.00, 0.13),  # 322
    ("load 12packed", True, 72): Slots(1.05, 0.00, 0.35, 0.46, 0.08, 0.05),  # 124
    ("load 12packed", True, 87): Slots(1.00, 0.00, 0.35, 0.48, 0.01, 0.04),  # 118
    ("load 12packed", True, 90): Slots(1.00, 0.00, 0.26, 0.50, 0.01, 0.09),  # 118
    ("load 12packed", False, 72): Slots(0.99, 0.00, 0.34, 0.44, 0.05, 0.07),  # 117
    ("load 12packed", False, 87): Slots(0.96, 0.00, 0.31, 0.47, 0.01, 0.06),  # 113
    ("load 12packed", False, 90): Slots(1.03, 0.00, 0.26, 0.53, 0.01, 0.12),  # 122
    ("load 12packed calibrated", True, 72): Slots(0.94, 0.00, 0.36, 0.45, 0.03, 0.06),  # 322
    ("load 12packed calibrated", True, 87): Slots(0.94, 0.00, 0.38, 0.46, 0.00, 0.06),  # 323
    ("load 12packed calibrated", True, 90): Slots(1.00, 0.00, 0.34, 0.48, 0.00, 0.11),  # 344
    ("load 12packed calibrated", False, 72): Slots(0.90, 0.00, 0.34, 0.46, 0.00, 0.07),  # 309
    ("load 12packed calibrated", False, 87): Slots(0.92, 0.01, 0.36, 0.46, 0.00, 0.07),  # 317
    ("load 12packed calibrated", False, 90): Slots(0.97, 0.00, 0.33, 0.47, 0.00, 0.12),  # 335
    ("load u16", True, 72): Slots(0.93, 0.00, 0.25, 0.42, 0.09, 0.04),  # 104
    ("load u16", True, 87): Slots(0.94, 0.00, 0.27, 0.49, 0.01, 0.04),  # 105
    ("load u16", True, 90): Slots(1.00, 0.01, 0.25, 0.49, 0.01, 0.09),  # 112
    ("load u16", False, 72): Slots(0.88, 0.00, 0.26, 0.39, 0.05, 0.05),  # 98
    ("load u16", False, 87): Slots(0.98, 0.00, 0.36, 0.45, 0.01, 0.05),  # 110
    ("load u16", False, 90): Slots(1.07, 0.01, 0.27, 0.53, 0.01, 0.12),  # 120
    ("load u16 calibrated", True, 72): Slots(0.94, 0.00, 0.36, 0.46, 0.03, 0.06),  # 303
    ("load u16 calibrated", True, 87): Slots(0.94, 0.00, 0.37, 0.48, 0.00, 0.05),  # 305
    ("load u16 calibrated", True, 90): Slots(1.00, 0.00, 0.33, 0.49, 0.00, 0.11),  # 323
    ("load u16 calibrated", False, 72): Slots(0.89, 0.00, 0.34, 0.46, 0.00, 0.07),  # 289
    ("load u16 calibrated", False, 87): Slots(0.93, 0.01, 0.35, 0.48, 0.00, 0.07),  # 299
    ("load u16 calibrated", False, 90): Slots(0.97, 0.00, 0.32, 0.48, 0.00, 0.13),  # 314
    ("load u8", True, 72): Slots(0.95, 0.07, 0.22, 0.50, 0.01, 0.10),  # 137
    ("load u8", True, 87): Slots(0.91, 0.07, 0.22, 0.49, 0.00, 0.10),  # 131
    ("load u8", True, 90): Slots(1.00, 0.07, 0.22, 0.53, 0.00, 0.10),  # 144
    ("load u8", False, 72): Slots(1.03, 0.00, 0.33, 0.40, 0.14, 0.17),  # 148
    ("load u8", False, 87): Slots(1.01, 0.00, 0.33, 0.40, 0.14, 0.17),  # 146
    ("load u8", False, 90): Slots(1.08, 0.00, 0.32, 0.46, 0.14, 0.17),  # 156
    ("load u8 calibrated", True, 72): Slots(0.93, 0.00, 0.40, 0.40, 0.03, 0.05),  # 294
    ("load u8 calibrated", True, 87): Slots(0.93, 0.00, 0.40, 0.42, 0.00, 0.05),  # 296
    ("load u8 calibrated", True, 90): Slots(1.00, 0.00, 0.36, 0.44, 0.00, 0.11),  # 317
    ("load u8 calibrated", False, 72): Slots(0.88, 0.00, 0.38, 0.40, 0.00, 0.07),  # 278
    ("load u8 calibrated", False, 87): Slots(0.91, 0.00, 0.39, 0.41, 0.00, 0.06),  # 290
    ("load u8 calibrated", False, 90): Slots(0.97, 0.00, 0.34, 0.43, 0.00, 0.12),  # 306
    ("mono adaptive", True, 72): Slots(1.07, 0.68, 0.04, 0.22, 0.00, 0.18),  # 277
    ("mono adaptive", True, 87): Slots(0.97, 0.68, 0.01, 0.16, 0.00, 0.18),  # 252
    ("mono adaptive", True, 90): Slots(1.00, 0.68, 0.01, 0.19, 0.00, 0.18),  # 259
    ("mono adaptive", False, 72): Slots(1.36, 0.00, 0.94, 0.22, 0.08, 0.29),  # 353
    ("mono adaptive", False, 87): Slots(1.30, 0.00, 0.94, 0.16, 0.08, 0.29),  # 337
    ("mono adaptive", False, 90): Slots(1.31, 0.00, 0.95, 0.16, 0.08, 0.29),  # 339
    ("mono bilinear", True, 72): Slots(1.19, 0.33, 0.26, 0.40, 0.00, 0.28),  # 51
    ("mono bilinear", True, 87): Slots(1.00, 0.33, 0.07, 0.40, 0.00, 0.28),  # 43
    ("mono bilinear", True, 90): Slots(1.00, 0.33, 0.07, 0.40, 0.00, 0.28),  # 43
    ("mono bilinear", False, 72): Slots(1.33, 0.00, 1.07, 0.05, 0.00, 0.42),  # 57
    ("mono bilinear", False, 87): Slots(0.93, 0.00, 0.67, 0.05, 0.00, 0.42),  # 40
    ("mono bilinear", False, 90): Slots(0.93, 0.00, 0.67, 0.05, 0.00, 0.42),  # 40
    ("mono gradient", True, 72): Slots(1.28, 0.54, 0.16, 0.42, 0.00, 0.24),  # 86
    ("mono gradient", True, 87): Slots(0.99, 0.54, 0.04, 0.24, 0.00, 0.24),  # 66
    ("mono gradient", True, 90): Slots(1.00, 0.54, 0.04, 0.25, 0.00, 0.24),  # 67
    ("mono gradient", False, 72): Slots(1.51, 0.00, 0.99, 0.36, 0.00, 0.42),  # 101
    ("mono gradient", False, 87): Slots(1.27, 0.00, 0.73, 0.37, 0.00, 0.42),  # 85
    ("mono gradient", False, 90): Slots(1.27, 0.00, 0.73, 0.37, 0.00, 0.42),  # 85
    ("mono_full", True, 72): Slots(0.99, 0.35, 0.19, 0.27, 0.15, 0.04),  # 1192
    ("mono_full", True, 87): Slots(0.98, 0.35, 0.19, 0.29, 0.09, 0.04),  # 1177
    ("mono_full", True, 90): Slots(1.00, 0.35, 0.17, 0.32, 0.09, 0.05),  # 1198
    ("mono_half", True, 72): Slots(1.01, 0.16, 0.31, 0.39, 0.09, 0.09),  # 942
    ("mono_half", True, 87): Slots(1.02, 0.16, 0.31, 0.40, 0.05, 0.08),  # 946
    ("mono_half", True, 90): Slots(1.00, 0.16, 0.30, 0.40, 0.05, 0.09),  # 932
    ("mono_half_calibrated", True, 72): Slots(1.00, 0.33, 0.07, 0.48, 0.00, 0.16),  # 774
    ("mono_half_calibrated", True, 87): Slots(1.04, 0.33, 0.10, 0.48, 0.00, 0.14),  # 805
    ("mono_half_calibrated", True, 90): Slots(1.00, 0.33, 0.07, 0.48, 0.00, 0.17),  # 774
    ("mono_half_calibrated", False, 72): Slots(1.34, 0.00, 0.68, 0.58, 0.00, 0.11),  # 1035
    ("mono_half_calibrated", False, 87): Slots(1.35, 0.00, 0.65, 0.59, 0.00, 0.11),  # 1045
    ("mono_half_calibrated", False, 90): Slots(1.37, 0.00, 0.65, 0.60, 0.00, 0.13),  # 1057
    ("products", True, 72): Slots(1.01, 0.12, 0.39, 0.35, 0.06, 0.02),  # 364
    ("products", True, 87): Slots(0.97, 0.11, 0.39, 0.35, 0.04, 0.02),  # 349
    ("products", True, 90): Slots(1.00, 0.11, 0.40, 0.36, 0.04, 0.03),  # 359
    ("products", False, 72): Slots(0.99, 0.00, 0.51, 0.35, 0.04, 0.02),  # 354
    ("products", False, 87): Slots(0.96, 0.00, 0.50, 0.35, 0.04, 0.02),  # 345
    ("products", False, 90): Slots(0.97, 0.00, 0.48, 0.36, 0.04, 0.02),  # 349
    ("rectified samples", True, 72): Slots(0.88, 0.44, 0.10, 0.06, 0.00, 0.47),  # 149
    ("rectified samples", True, 87): Slots(0.94, 0.50, 0.10, 0.06, 0.00, 0.47),  # 159
    ("rectified samples", True, 90): Slots(1.00, 0.54, 0.08, 0.09, 0.00, 0.47),  # 169
    ("rectified window", True, 72): Slots(0.97, 0.26, 0.13, 0.42, 0.01, 0.12),  # 351
    ("rectified window", True, 87): Slots(0.91, 0.24, 0.13, 0.39, 0.00, 0.11),  # 328
    ("rectified window", True, 90): Slots(1.00, 0.25, 0.12, 0.43, 0.00, 0.12),  # 360
    ("ssim registers float32", True, 72): Slots(1.00, 0.00, 0.60, 0.28, 0.00, 0.11),  # 1211
    ("ssim registers float32", True, 87): Slots(1.01, 0.00, 0.60, 0.27, 0.00, 0.11),  # 1228
    ("ssim registers float32", True, 90): Slots(1.00, 0.00, 0.60, 0.27, 0.00, 0.11),  # 1216
    ("ssim registers mosaic", True, 72): Slots(1.01, 0.00, 0.50, 0.39, 0.00, 0.11),  # 1722
    ("ssim registers mosaic", True, 87): Slots(1.02, 0.00, 0.50, 0.38, 0.00, 0.11),  # 1741
    ("ssim registers mosaic", True, 90): Slots(1.00, 0.00, 0.50, 0.37, 0.00, 0.11),  # 1706
    ("ssim registers uint16", True, 72): Slots(0.98, 0.00, 0.58, 0.29, 0.00, 0.11),  # 1251
    ("ssim registers uint16", True, 87): Slots(1.02, 0.00, 0.58, 0.29, 0.00, 0.11),  # 1292
    ("ssim registers uint16", True, 90): Slots(1.00, 0.00, 0.58, 0.29, 0.00, 0.11),  # 1272
    ("ssim tensor uint16", True, 87): Slots(0.99, 0.10, 0.32, 0.33, 0.01, 0.06),  # 1426
    ("ssim tensor uint16", True, 90): Slots(1.00, 0.10, 0.25, 0.39, 0.01, 0.08),  # 1438
    ("thread", True, 72): Slots(0.88, 0.01, 0.24, 0.33, 0.01, 0.03),  # 162
    ("thread", True, 87): Slots(1.02, 0.00, 0.26, 0.35, 0.01, 0.01),  # 188
    ("thread", True, 90): Slots(1.00, 0.00, 0.25, 0.38, 0.01, 0.04),  # 185
    ("thread", False, 72): Slots(0.96, 0.00, 0.28, 0.37, 0.01, 0.02),  # 177
    ("thread", False, 87): Slots(1.04, 0.00, 0.26, 0.37, 0.01, 0.01),  # 193
    ("thread", False, 90): Slots(1.09, 0.01, 0.26, 0.43, 0.01, 0.03),  # 201
    ("transform between", True, 72): Slots(0.97, 0.26, 0.10, 0.35, 0.00, 0.26),  # 166
    ("transform between", True, 87): Slots(0.96, 0.26, 0.10, 0.34, 0.00, 0.26),  # 165
    ("transform between", True, 90): Slots(1.00, 0.26, 0.10, 0.37, 0.00, 0.28),  # 172
    ("transform between", False, 72): Slots(1.42, 0.35, 0.51, 0.30, 0.00, 0.28),  # 245
    ("transform between", False, 87): Slots(1.42, 0.35, 0.50, 0.31, 0.00, 0.28),  # 245
    ("transform between", False, 90): Slots(1.46, 0.35, 0.50, 0.33, 0.00, 0.31),  # 251
    ("transform pixels", True, 72): Slots(1.08, 0.16, 0.33, 0.20, 0.16, 0.21),  # 82
    ("transform pixels", True, 87): Slots(0.97, 0.16, 0.33, 0.26, 0.00, 0.21),  # 74
    ("transform pixels", True, 90): Slots(1.00, 0.16, 0.32, 0.26, 0.00, 0.26),  # 76
    ("transform pixels", False, 72): Slots(0.92, 0.16, 0.32, 0.21, 0.00, 0.26),  # 70
    ("transform pixels", False, 87): Slots(0.91, 0.17, 0.30, 0.21, 0.00, 0.26),  # 69
    ("transform pixels", False, 90): Slots(0.93, 0.16, 0.30, 0.21, 0.00, 0.32),  # 71
}
