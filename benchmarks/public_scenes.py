"""Public scenes that `accuracy.py --public DIR` measures; none of them is part of this project.

Each repository must be cloned into `DIR/<owner>/<name>` at the commit of its row.
"""

from __future__ import annotations

from typing import NamedTuple, Tuple


class PublicScenes(NamedTuple):
    """Scenes of a repository.

    Attributes:
        repository: Owner and name on GitHub.
        commit: What was measured.
        files: Pattern of the scenes below the repository.
        about: Who took them, how, as far as the repository says so.
        license: What the repository states; "" for nothing.
        content: What the files hold, as `read_frames` takes it.
        without: Scenes that are left out: `about` says why.
    """

    repository: str
    commit: str
    files: str
    about: str
    license: str = ""
    content: str = "angles"
    without: Tuple[str, ...] = ()

    @property
    def data(self) -> str:
        """Pattern below the folder of all repositories."""
        return f"{self.repository}/{self.files}"


#: What `docs/accuracy.md` shows.
PUBLIC = (
    PublicScenes(
        "pjlapray/Polarimetric_Spectral_Database",
        "d7a0e0006997867aed65a505282887a83605485e",
        "{scene}/Raw/NIR_filtre_nir_{angle}_aligned.tif",
        "Lapray et al. 2018, near infrared, 12 bit; without `food`, whose images are not aligned",
        without=("food",),
    ),
    PublicScenes(
        "pjlapray/LMMSE-Demosaicing-for-Polarization-Filter-Array",
        "5e183a6b286380a8f53322c79b0b82d7a19e7017",
        "Data/Dataset/{angle}_{scene}.png",
        "RGB, 16 bit; not stated who took them",
    ),
    PublicScenes(
        "pjlapray/LMMSE-Demosaicing-for-Colour-Polarization-Filter-Array",
        "b1fc27dfa555fab99e60093a26164cb12720b371",
        "Data/Dataset/{angle}_{scene}.png",
        "RGB, 8 bit; not stated who took them",
    ),
    PublicScenes(
        "wsj890411/CPDNet",
        "83cae44258872f52620ddba645309b393d71ddda",
        "OL_CPDNET_DATA/Test/test_dataset/{scene}/gt_{angle}/61.png",
        "Wen et al. 2019, RGB, 8 bit",
        "CC BY-NC",
    ),
    PublicScenes(
        "VIP-Lab-NEU/SwinCPD",
        "283de53ed219baf86091944baa4818f60bbcc38b",
        "AoLP Denoising/{scene}/scene_1/{angle}.png",
        "RGB, one scene of 8 and one of 16 bit, from data sets of others",
    ),
    PublicScenes(
        "RomanGDB/PolarizationDemosaickingPCDP",
        "edfe60fec96e93753306aae3e610e8e705a2eaa1",
        "docs/images/{scene}/I{angle}.png",
        "RGB, 8 bit, named as in the data set of Qiu et al. 2019; without tissue, whose images are half a pixel apart",
        without=("tejido_denso",),
    ),
    PublicScenes(
        "elerac/polanalyser",
        "344ccb944cf02f2de90320655b8b6ae0ff8ab7c4",
        "images/*.png",
        "mosaics of a Sony IMX250MZR, 8 bit; without `spoons`, which was not within reach",
        "MIT",
        content="mosaics",
        without=("spoons_IMX250MZR",),
    ),
)
