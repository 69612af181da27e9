"""Noise of the products: a standard deviation of every DoLP and AoLP, by the noise of the raw pixels.

A raw pixel of intensity I, a share of full scale, has a variance of ``I/F + (r/F)^2 + q^2/12`` with F electrons at full
scale, read noise of r electrons and levels of q. The angles at an output pixel are sums of raw pixels, so that S1, S2
and S0 there have a covariance matrix that is a sum over the colors and polarizers of raw pixels: of its variance times
a gain that depends on the method and on the output pixel's place in the mosaic (`gains`). With the unit vector n along
(S1, S2), DoLP p has the variance of ``n (S1, S2) - p S0`` over S0^2, AoLP that of (S1, S2) across n over (2 p S0)^2.
"""
