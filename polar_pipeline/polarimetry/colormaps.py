"""Color maps for display: 256 colors each, and how the colors of angles fade where light is hardly polarized.

All of them pass the check for color blindness in `docs/interpreting_images.md`, which the tests repeat.

`AOLP_MAP` has the hues of `phase` of cmocean 4.0.3 (Thyng et al., 2016, doi:10.5670/oceanog.2016.66), from its
published table under the following license. Its lightness (CIE L*) is 58 + 16 cos(2 (AoLP - 135 degrees)). The
lightness of `phase` is constant: on every such map, readers who lack a kind of cone see some perpendicular angles in
the same color. The chroma is that of `phase`, at most 6 % less, so that sRGB has these colors.

`DOLP_MAP` is `viridis` of Matplotlib (CC0). `DIVERGING_MAP` is straight in CIE L*a*b*, from blue (40, 19, -58) over a
neutral (96, 0, 0) at 0 to orange (40, 42, 49).

The MIT License (MIT)

Copyright (c) 2015 Kristen M. Thyng

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""

from __future__ import annotations

from typing import Dict, Tuple

import cv2
import numpy as np

#: Lightness (CIE L*) of this gray is the mean of that of `AOLP_MAP`.
GRAY = 139
#: What the color of an angle is mixed with, a gray level, and the least share of it; else DoLP is its share.
COLOR_STYLES: Dict[str, Tuple[float, float]] = {
    "plain": (0.0, 1.0),
    "light": (255.0, 0.0),
    "dark": (0.0, 0.0),
    "faded": (float(GRAY), 0.0),
}


def _table(digits: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(digits), np.uint8).reshape(256, 3)


#: (256, 3) uint8 RGB, read-only: of AoLP in 256ths of pi, and of DoLP in 255ths.
AOLP_MAP = _table(
    "b4831cb5811db57f1db67d1eb77b1db77a1eb8781fb8761fb87420b97220b97021b96f22ba6d23ba6b23ba6924bb6724"
    "bb6525bb6427bb6227bb6028bb5e29bc5c2abd5a2bbd582cbd562dbd552ebd532fbd5130be4f32be4d33be4b34be4935"
    "be4736bf4538be443abe423bbf403cbf3d3ebf3b3fc03941c03743c03544c03346c13048c02f4ac02d4bc02b4ec02950"
    "c12652c02554c12257c02159c11e5bc01c5ec01b60c01862c01765bf1568bf146abf126cbf0f6fbe0e72be0c74be0977"
    "be077abd077ebd0580bd0483bd0286bc0289bc018bbc018ebc0092bb0195bb0298ba039aba049db906a0b907a3b80aa6"
    "b80ca9b70eacb710afb612b2b614b4b615b7b517bab51abdb41cbfb41dc2b320c5b223c7b125cab127cdb02acfb02cd2"
    "ae2fd4ad31d6ad34d8ac36daaa39dcaa3bdea93ee0a741e1a643e3a546e4a448e6a24be7a14de9a14fea9f52eb9e54ed"
    "9c57ed9b59ef9a5bf0995df19860f29762f39565f49467f59269f5916bf68f6ef68e70f78c72f88b74f88976f88878f9"
    "867bf9857df9837ffa8181f98083fa7e85fa7d87fa7b89f9798bf9788df8768ff87491f77293f77095f66f97f56d99f5"
    "6c9af46a9cf3699ef1689ff266a1f165a3ef63a5ee63a6ed61a8ec60a9eb5fabea5eace85caee65cafe55bb0e35bb2e2"
    "5ab3e159b4e058b5de59b6dd58b7dc58b9da58bad958bad857bcd657bcd457bdd357bed157bfd057c0ce57c1cd56c1ca"
    "57c2c957c3c857c3c656c4c456c5c256c5c056c6bf55c6bc55c7ba55c7b955c8b755c8b554c8b354c9b154c9af54c9ad"
    "54c9ab53caa753caa553caa353caa153ca9e53ca9c53ca9853ca9554ca9254ca8f55c98d55c98957c98658c98359c87f"
    "5ac87c5bc7785dc7755fc67161c56e64c56b65c46768c3636bc2606dc15c71c05874bf5577be527abd4e7dbb4c80ba49"
    "83b94586b74389b6418cb43f8eb33d91b13b93af3995ae3897ac369aab359ca9349da7329fa631a1a430a2a22fa3a12e"
    "a69f2da79d2ca89b2baa992aaa9829ab9628ad9427ae9326af9125b08f24b18d23b28b22b28921b48820b5861fb5841d"
)
DOLP_MAP = cv2.applyColorMap(np.arange(256, dtype=np.uint8)[np.newaxis], cv2.COLORMAP_VIRIDIS)[0, :, ::-1].copy()
DOLP_MAP.flags.writeable = False
#: (256, 3) uint8 RGB, read-only: of signed values in 127ths of the largest, from -127 to 127, at 1 to 255.
DIVERGING_MAP = _table(
    "1d5abe1d5abe225bbe265cbf295dbf2d5ec0305fc03360c03661c13862c13b63c23d65c24066c34267c34468c44769c4"
    "496ac54b6bc54d6cc54f6dc6516ec65370c75571c75772c85973c85b74c95d75c95e76c96077ca6279ca647acb667bcb"
    "677ccc697dcc6b7ecc6c7fcd6e81cd7082ce7183ce7384cf7585cf7686d07888d07a89d07b8ad17d8bd17e8cd2808ed2"
    "818fd38390d38591d38692d48893d48995d58b96d58c97d68e98d68f99d6919bd7929cd7949dd8959ed8979fd998a1d9"
    "9aa2d99ba3da9da4da9ea6db9fa7dba1a8dca2a9dca4aadca5acdda7addda8aedeaaafdeabb1deacb2dfaeb3dfafb4e0"
    "b1b6e0b2b7e1b4b8e1b5b9e1b6bbe2b8bce2b9bde3bbbee3bcc0e3bdc1e4bfc2e4c0c3e5c2c5e5c3c6e6c4c7e6c6c9e6"
    "c7cae7c9cbe7cacce8cbcee8cdcfe8ced0e9d0d2e9d1d3ead2d4ead4d5ead5d7ebd7d8ebd8d9ecd9dbecdbdcecdcdded"
    "dddeeddfe0eee0e1eee2e2eee3e4efe4e5efe6e6f0e7e8f0e8e9f0eaeaf1ebecf1ededf2eeeef2efeff2f1f1f3f2f2f3"
    "f3f3f3f3f2f1f3f0eff3efedf2edebf2eceaf2eae8f2e9e6f1e7e4f1e6e2f1e4e0f0e3def0e2dcf0e0daf0dfd8efddd6"
    "efdcd4efdad2eed9d0eed7ceedd6ccedd4caedd3c8ecd1c6ecd0c4eccec2ebcdc1ebcbbfeacabdeac8bbeac7b9e9c5b7"
    "e9c4b5e8c3b3e8c1b1e7c0afe7beade6bdace6bbaae5baa8e5b8a6e4b7a4e4b5a2e3b4a0e3b39ee2b19de2b09be1ae99"
    "e1ad97e0ab95e0aa93dfa891dfa790dea68edea48cdda38adca188dca086db9e85db9d83da9b81d99a7fd9997dd8977c"
    "d8967ad79478d69376d69174d59073d48f71d48d6fd38c6dd28a6bd2896ad18768d08666d08564cf8363ce8261ce805f"
    "cd7f5dcc7e5ccc7c5acb7b58ca7956c97855c97653c87551c7744fc6724ec6714cc56f4ac46e48c36c47c36b45c26a43"
    "c16841c06740bf653ebf643cbe623bbd6139bc6037bb5e35bb5d34ba5b32b95a30b8582eb7572db6562bb65429b55327"
    "b45126b35024b24e22b14d20b04b1eaf4a1daf481bae4719ad4517ac4415ab4213aa4111a93f0ea83e0ca73c09a63b07"
)
