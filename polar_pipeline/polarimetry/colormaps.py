"""Color maps for display: 256 colors each, and how the colors of angles fade where light is hardly polarized.

`AOLP_MAP` is `phase` of cmocean 4.0.3, cyclic and of nearly constant lightness, from its published table (Thyng et al.,
2016, doi:10.5670/oceanog.2016.66), under the following license. `DOLP_MAP` is `viridis` of Matplotlib (CC0).

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

import numpy as np

#: Lightness (CIE L*) of this gray is the mean of that of `AOLP_MAP`.
GRAY = 129
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
    "a8780da9770fab7611ac7513ae7414af7316b17218b27119b3701bb56f1db66e1eb76d20b96c22ba6b23bb6a25bd6926"
    "be6828bf672ac0662bc1652dc2642ec46230c56132c66033c75f35c85e37c95d38ca5c3acb5a3ccc593ecd583fce5741"
    "cf5643d05445d05347d15249d2514bd34f4dd44e4fd54d51d54b53d64a55d74957d8475ad8465cd9455ed94361da4263"
    "db4066db3f68dc3d6bdc3c6ddd3a70dd3973dd3876de3678de357bde337ede3281df3184df2f87df2e8adf2d8ddf2b90"
    "df2a93de2997de289ade289dde27a0dd26a3dd26a6dc25a9dc25addb25b0da25b3da26b6d926b9d827bcd727bed628c1"
    "d529c4d42ac7d32bc9d22dccd12eced02fd0cf31d3cd32d5cc34d7cb35d9c937dbc839ddc63adfc53ce1c33ee2c23fe4"
    "c041e5be43e7bd45e8bb46e9b948ebb84aecb64bedb44deeb24fefb050efae52f0ac54f1aa55f1a957f2a759f3a45af3"
    "a25cf3a05df49e5ff49c60f49a62f49863f49565f49366f49168f48f69f48c6bf38a6cf3876df3856ff28270f18071f1"
    "7d73f07b74ef7875ef7677ee7378ed7079ec6e7aeb6b7be9687ce8667ee7637fe66080e45d81e35a82e15883df5584de"
    "5285dc4f86da4d87d84a87d74788d54589d3428ad1408acf3d8bcd3b8ccb388cc9368dc7348ec4328ec2308fc02e8fbe"
    "2c90bc2a90ba2891b82791b62591b42492b22392b02192ae2093ac1f93aa1e93a81d94a61c94a41b94a21a94a019959e"
    "19959c18959a17959816969615969414969214969013978e12978c11978a1097880f97860e98840d98820d98800c987e"
    "0c987c0b99790b99770b99750c99730d99700e996e0f9a6b119a69139a66159a63179a61199a5e1c9a5b1f9a58219a55"
    "249a52279a4f2b9a4c2e9a493199463599433899403c993c4098394398364797324b972f4f962c5396295695265a9423"
    "5e942061931e65921b6891196b90176f9016728f14748e13778d127a8c117d8b107f8b0f828a0f84890e86880e88870e"
    "8b860d8d850d8f840d91830d93830d95820d97810d99800d9b7f0d9d7e0d9f7d0da17c0da27b0da47a0da6790da8780d"
)
DOLP_MAP = _table(
    "44015444025645045745055946075a46085c460a5d460b5e470d60470e61471063471164471365481467481668481769"
    "48186a481a6c481b6d481c6e481d6f481f70482071482173482374482475482576482677482878482979472a7a472c7a"
    "472d7b472e7c472f7d46307e46327e46337f463480453581453781453882443983443a83443b84433d84433e85423f85"
    "4240864241864142874144874045884046883f47883f48893e49893e4a893e4c8a3d4d8a3d4e8a3c4f8a3c508b3b518b"
    "3b528b3a538b3a548c39558c39568c38588c38598c375a8c375b8d365c8d365d8d355e8d355f8d34608d34618d33628d"
    "33638d32648e32658e31668e31678e31688e30698e306a8e2f6b8e2f6c8e2e6d8e2e6e8e2e6f8e2d708e2d718e2c718e"
    "2c728e2c738e2b748e2b758e2a768e2a778e2a788e29798e297a8e297b8e287c8e287d8e277e8e277f8e27808e26818e"
    "26828e26828e25838e25848e25858e24868e24878e23888e23898e238a8d228b8d228c8d228d8d218e8d218f8d21908d"
    "21918c20928c20928c20938c1f948c1f958b1f968b1f978b1f988b1f998a1f9a8a1e9b8a1e9c891e9d891f9e891f9f88"
    "1fa0881fa1881fa1871fa28720a38620a48621a58521a68522a78522a88423a98324aa8325ab8225ac8226ad8127ad81"
    "28ae8029af7f2ab07f2cb17e2db27d2eb37c2fb47c31b57b32b67a34b67935b77937b87838b9773aba763bbb753dbc74"
    "3fbc7340bd7242be7144bf7046c06f48c16e4ac16d4cc26c4ec36b50c46a52c56954c56856c66758c7655ac8645cc863"
    "5ec96260ca6063cb5f65cb5e67cc5c69cd5b6ccd5a6ece5870cf5773d05675d05477d1537ad1517cd2507fd34e81d34d"
    "84d44b86d54989d5488bd6468ed64590d74393d74195d84098d83e9bd93c9dd93ba0da39a2da37a5db36a8db34aadc32"
    "addc30b0dd2fb2dd2db5de2bb8de29bade28bddf26c0df25c2df23c5e021c8e020cae11fcde11dd0e11cd2e21bd5e21a"
    "d8e219dae319dde318dfe318e2e418e5e419e7e419eae51aece51befe51cf1e51df4e61ef6e620f8e621fbe723fde725"
)
