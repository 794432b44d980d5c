"""What the pages of reproduced papers say in words; numbers come from the recorded results."""

PAPERS = {
    "ibnn": (
        "Implicit Bayesian neural networks, run again",
        """
Trinh, Kaski & Heinonen, *Scalable Bayesian neural networks by layer-wise input augmentation* (2020, arXiv:2010.13498),
table by table and figure by figure. The command under each part runs it, and the page is generated from what was
recorded. At size *full* networks were run a few at a time (`--only`); a – stands for what was not. "Published" are the
paper's means and deviations of five seeds.

**What was reproduced.** Where the paper's text and its code differ, the code made the published numbers, and the code's
way is taken: the S samples of a datum come from different components (Algorithm 1 draws them from one, and so does
figure 1 here), VGG-16 sees images with ImageNet's mean and deviation, and all components share the statistics of batch
normalisation. Its faults are not taken over: MC-dropout is scored with batch normalisation in evaluation mode, and in
figure 1 both methods also meet the same data and the same weight of the divergence. What is not published was chosen:
MC-dropout and BNN-VI have 80 draws, SGD and MC-dropout a weight decay of 0.0005 and BNN-VI none; BNN-VI's prior has a
deviation of 4/√fan-in, and its deviations start at 0.0015 of that, where the code has 0.015 (so has figure 4); figures
2 to 4 have the recipe of VGG-16; in table 7 components start at the prior's deviation, with one sample a datum. On a
GPU networks are trained in bfloat16, but for one row.

**The sizes.** *full* is the published setting. *small* is what a processor core does in minutes, on real data: in
tables 3 to 6 a LeNet of twice the usual width on a fifth of CIFAR, with the recipe that the paper has for VGG-16 but 20
epochs, images that are neither shifted nor mirrored, and 2,000 test images. So small a network over-fits so few images
by design: numbers cannot be compared with the published ones, and what turns round there is said.

**The entropic setting** is after the paper's successor (Trinh et al. 2022), at the same rows a step and the same epochs
as iBNN-16: the divergence `kl="bound"`, an entropy that counts 1 + γ times, four components, means that start with a
deviation of 0.05 around 1, noise that starts at its prior, a lower rate of the noise, and a weight decay of 0.0005. The
successor has the noise on outputs, four samples a datum and 32 draws, and its code a coefficient of 1/16 in the bound,
where 1/4 is right.

**What held, and what did not**, so far as it was run; the numbers stand in the tables below. At size *full* each row is
one network, so that small differences may be chance.

- *VGG-16 with 16 components reaches the published numbers*: held for error and calibration, which are within the
  published spread or better on both data sets. The likelihood is behind by 3.2 published deviations on CIFAR-10 and 2.2
  on CIFAR-100. In float32 it is behind by 1.5 on CIFAR-10, with an error better than published: bfloat16 may be half of
  the difference, or chance. On CIFAR-100 float32 was not run.
- *It has a lower error, a better likelihood and a better calibration than the network trained by SGD*: held with VGG-16
  on both data sets, by far for the last two.
- *It is ahead of MC-dropout*: held with VGG-16 on both data sets. It did not hold at size *small*: the paper's
  divergence costs nothing for components that drift apart, so its noise may restrain a network that over-fits too
  little. In the entropic setting it is better calibrated than MC-dropout there, with a likelihood about as good and no
  fewer errors.
- *BNN-VI is behind all others*: held with VGG-16 in error and likelihood, and by more than published. Trained on the
  bound, both networks end with nearly equal probabilities for all classes: the divergence falls from 1,700 nats an
  image to 0.4, and what could be learned is not worth its price. Their calibration error is near 0 because they say
  nothing. The published rows are over-confident, with a likelihood far worse than that of SGD, as if the divergence
  had hardly counted; their prior is not published. It did not hold at size *small*, where BNN-VI has the best
  likelihood and calibration of all, though nearly no epistemic uncertainty.
- *WideResNet-28x10 on CIFAR-10 comes to 3.34 % of error*: not reached in 18 minutes of training on one H200 (200
  epochs, one sample a datum, batches of 256). It has 3.70 %, behind the published SGD's 3.53, with the likelihood of
  that SGD (0.128) and a better calibration (0.0134 and 0.0165); the published iBNN-16 is ahead in both (0.107 and
  0.0048). The published 300 epochs with two samples were not run.
- *More components are better, and more than 16 do no harm with larger batches*: held at size *small* in likelihood,
  which improves up to 32 components; errors do not follow. That more than 16 do harm with small batches did not show.
- *The components fill one wide mode and generalise better* (figure 2): held at size *small*, in that their average has
  the lowest loss of all; the mixture has 9.56 % of errors where its components have 9.76, which is within chance.
- *Functions differ where the network is unsure* (figure 3): held for three of the four least certain images; of the
  fourth, all 40 functions give the same wrong answer, unsure as each of them is.
- *A trained network gains within 15 epochs*: held at size *small* in likelihood and calibration; errors fall within
  chance. ImageNet was not run.
- *Uncertainty grows as images are disturbed* (figure 8): held at size *full* up to 0.2 or 0.3 of Gaussian noise, and to
  0.05 or 0.1 each of salt and of pepper, for every method. Beyond that it did not: all grow surer again, and some rise
  once more towards the end. Of pure Gaussian noise SGD and MC-dropout are surer than of images of CIFAR-10, iBNN-16
  half as sure; on CIFAR-100 all are less sure of it. *iBNN's uncertainty of noise is epistemic, that of MC-dropout is
  not*: held with VGG-16, more than half of it with iBNN-16, and with MC-dropout a seventh on CIFAR-10 and two fifths on
  CIFAR-100; with the WideResNet it is a quarter.
- *BNN-VI loses the fit as networks grow deeper, iBNN does not* (figure 1): held at size *small* as in the text, in part
  as in the code.
- *BNN-VI degrades in wide networks* (figure 4): could not show up to 657,000 parameters, where the picture ends, for
  its deviations stay small. That iBNN improves as networks grow held; SGD is no worse at any width.
- *Weights outnumber nodes by up to 3,800* (table 1): held but for LeNet, whose nodes are 207, not 23.
- Beyond the paper, *the entropic setting with γ = 40 is ahead of iBNN-16* in error, likelihood and calibration, on both
  data sets, for the same rows and epochs. How much of that is γ is not known: the two networks with γ = 0 learned
  nothing, and at size *small* γ = 0 does as well. `posterity.IBNN` has this objective by default, with a smaller γ that
  suits small data; for a network like this take 40. It was taken by 5,000 held-out images after 60 epochs, where 20 and
  80 are behind within chance. On CIFAR-100 the successor's own γ = 80 has a better error and likelihood still, and is
  less sure than it could be; twice the samples help its likelihood and calibration. γ = 70 was picked after 40 and 80
  had been scored on the test images, so that its row is no fair estimate.

VGG-16 has no normalisation, and with the published rate it does not always begin to learn: such networks are named and
left out. For SGD and MC-dropout the next seed was taken on CIFAR-10, and on CIFAR-100 that one alone; for γ = 0 none.
""",
    ),
    "bbh": (
        "Bayes by Hypernet, run again",
        """
Pawlowski, Brock, Lee, Rajchl & Glocker, *Implicit weight uncertainty in neural networks* (2017, arXiv:1711.01297), the
tables and figures of the slides. The command under each part runs it, and the page is generated from what was recorded.
At size *full* networks were run a few at a time (`--only`), one of each; what has not run is named under its table. The
[methods](../methods/index.md) have pages of their own: MAP (a plain network), ensembles, BbB (Bayes by Backprop),
MC-dropout, MNF (multiplicative normalising flows), BbH (Bayes by Hypernet), iBNN and LIVI.

**Two protocols.** *As published* is what the authors' code does: BbH with a generator for each tensor, a divergence
from the nearest neighbours of five draws, a prior N(0, 1) (MNF N(0, e)), RMSProp for BbH and Adam for the others, both
with an ε that small gradients feel, at constant rates; the weight of the divergence of BbH and MNF rises from zero; the
deviations of BbB are exp(ρ/2), from a small start. *With the library's defaults* gives every method what it has here,
with the same data, epochs and draws; those that have a divergence are trained by the bound, the likelihood less the
divergence from the prior. *Set in other ways* are, so far as they were run: methods that draw weights, with a tenth of
the divergence; MNF with a fault of the authors' code; and in table 3 BbH with a prior by fan-in, or with five draws
that each meet a part of the batch, from noise that all tensors share or noise of their own, by Adam at a rate that
falls (64 units before the weights, "wider" 256; at size *small* 16 and 64).

- Faults that were not taken over: an MNF that clips its σ and, but for a row of tables 3 and 4, forgets the divergence
  of its convolutions, generators that start 25 times too small, a single generator whose convolutions share one bias,
  and batch normalisation by the statistics of the test batch. Running statistics mix those of all draws and suit no
  single one, so each drawn function has those of training images, measured for itself (`posterity.Normalised`).
- What else differs from the code: the size of the noise behind the tables is not published; here it is 8. MNF draws its
  multipliers once for a batch, not for each image, and they start at 1, not at 0. The decay of MAP and MC-dropout falls
  on biases too. The members of an ensemble share their batches. On CIFAR5 the contrast of each channel is not changed
  at random, and all networks have a last batch normalisation, which the code gives to MAP, MC-dropout and the ensemble
  alone. On the toy all have AdamW as published; trained by the bound MAP, ensembles and MC-dropout have SGD.

**How to read the tables.** AUROC is the chance that an outlier has more uncertainty than a test image, by the whole of
it and by the epistemic part, of which a single function has none (0.500). NLL is in nats; the calibrated one has a
temperature that was fitted on the other half of the test images. *Within chance* are differences of less than two
standard errors, of test images or, on the toy, of data sets; and of less than 0.06 in the area outside the data, by
which the slides' own two runs of BbH differ (0.73 % and 0.54 in table 1, 0.56 % and 0.48 in table 3; here, at size
*full*, one network stands in both tables). With one network each, chance of the training is in none of them; that both
networks met the same test images, which makes chance smaller, is not counted.

**What the slides' AUC is.** The area under the distribution function of the predictive entropy is 1 − E[H] / log C: the
mean entropy, and no more. It should be high inside the data and low on outliers, but a network that is unsure of
everything has a low one on outliers too. Whether outliers are told from data is the AUROC, which stands beside it.

**What the divergence of nearest neighbours is.** It has no minimum at the prior: it falls below zero where draws spread
wider than the prior in all directions, and rewards that. (Draws of one generator of few numbers come near each other,
so that a single generator is far wider than the prior at +11,000 nats.) As published BbH ends at −39,000 nats, and the
weights of its largest layer have a deviation of 4.2 over draws, where the prior has 1.

**What the slides' attack is.** The average of one FGSM image for each drawn function: it is the smaller, the more the
functions disagree, while MAP meets the full ε. The full attack moves every pixel that has a gradient by ε against the
mean prediction.

**The toy**, on three data sets at size *small*. The published weight of the divergence is 0 from the tenth step on, so
that the bands of BbB, MNF and BbH are in large part what is left of the initialisation; trained by the bound they are
the methods'. NUTS samples the posterior under the prior N(0, 1). BbB, MNF and BbH have that prior; trained by the bound
LIVI has it too, and MAP, ensembles and MC-dropout have it as a decay. It is the truth of that model, not of x³, which
so narrow a prior flattens: the likelihood of new points stands beside it.

**The sizes.** *full* is the published setting. *small* is what one processor core does in minutes: LeNet on 5,000
digits for 6 epochs, and layer-wise generators with 16 units before the weights, where the published ones have 512 and
222 million parameters; in table 1 a LeNet of a tenth of the weights for 20 epochs, with layer-wise generators of 64
units; in table 4 a ResNet-14 on 2,000 images for 8 epochs; 20 draws, 1,000 test images, an ensemble of 3 as published,
and AdamW for all. As published, the divergence is divided by the published number of images at that size too, but for
table 1.

**What held, and what did not**, so far as it was run, at size *full* where none is named. Numbers stand in the tables
below or in the records of the networks, `reproductions/full/cells`, but for those of two networks with softplus, which
were trained again. The first records hold no likelihood of training, which was not exact then.

- *BbH has the best trade-off of fit and uncertainty on the toy*: did not hold. As published BbH is 1.1 ± 0.8 nats from
  NUTS, and BbB (0.1), MC-dropout (0.2) and MNF (0.3) are nearer, within chance. Trained by the bound BbH, BbB and MNF
  cannot be told apart (0.29 to 0.30), all with 3.3 times the deviation of NUTS beyond the data; LIVI is nearest (0.26),
  within chance. That MAP and ensembles fit well and are too sure held, that MC-dropout is too sure did not as
  published. That BbB and MNF fit worse than BbH held as published, within chance; BbH's uncertainty is closer to that
  of NUTS than BbB's, not than MNF's. By the likelihood of new points BbH is third as published, behind MC-dropout and
  BbB, within chance; trained by the bound BbB, BbH and MNF (6.2 to 6.3 nats) are ahead of all others and of NUTS itself
  (12.9), since their width makes up for the flattened mean. LIVI, with 0.57 of NUTS's deviation there, has 20.7.
- *Layer-wise generators perform best, and a single one is the fastest*: held at size *full*, but the single generator
  is no contender there: 89 % of errors, where 1.1 is published. With the hidden layers of equal size, which do no
  better, it has learned the digits before the divergence counts (a training NLL of 0.085 after six epochs), loses them
  while its weight rises (1.1 after twenty) and in the ten epochs after, to more than log 10, and ends with weights 2 to
  14 times as wide as the prior. Which of the differences from the authors' code decides (the start, a bias for each
  filter, the size of the noise) was not run. And the layer-wise ones have 90 times the parameters of the sliced ones:
  with equally many they are no better, 1.33 % and 1.17, though the least sure of outliers of all that learned, by far,
  and of digits. That larger generators are no better did not hold downwards: those with 64-64-4 units have twice the
  errors of those with 64-256-512. At size *small* only the layer-wise ones learn well. LIVI, which stands beside them
  by its own defaults (rate, schedule and optimiser too), has a fifth of the parameters of equal ones and fewer errors,
  but nearly no epistemic uncertainty (0.0001 nats of 0.043) and the lowest AUROC of table 3 by the total: 64 noise
  variables for 431,080 weights, and a deviation of 0.05/√fan-in in all other directions, are nearly a point.
- *The errors on digits are comparable, and fewer than BbH's for ensembles and MC-dropout alone*: held as published,
  within chance. All six come to the published ones within chance, and all but MNF to the published areas outside. For
  BbB what ρ is counts there: with σ = softplus(ρ) in place of the authors' exp(ρ/2) a network had an area of 0.540 on
  outliers (and 1.03 % of errors), where this one has 0.457 (0.77 %), and 0.41 (0.72 %) is published. From the published
  start, σ = 0.011, softplus lets a step of Adam move log σ about 2.7 times as far, for the gradients are not large
  beside its ε. MNF is less sure of outliers than published (0.41 and 0.58), because the authors' forgets the divergence
  of the convolutions: with that fault it has 0.67 %, 0.982 and 0.552, where 0.63, 0.99 and 0.58 are published. With the
  library's defaults, whose prior follows the fan-in, BbB and MNF have the published errors with all of the divergence.
  With a tenth of it they have fewer, within chance, and an NLL of 0.018 in place of 0.030, the most of which is
  calibration.
- *BbH comes to 0.56 % of errors, 0.97 inside and 0.48 outside*: held as published, errors and the area outside within
  chance (0.61 %, 0.987, 0.506), and in full where each of five draws meets a part of the batch and each tensor has
  noise of its own: 0.54 %, 0.994 and 0.438, with an eighth of the published parameters. It has the lowest NLL of table
  3 (0.0168 nats; MNF with a tenth of the divergence 0.0177), of the lowest after calibration (0.0171, iBNN 0.0162), and
  tells letters from digits best, by an AUROC of 0.995 (MNF as published 0.993, all others at most 0.988). The setting
  was picked among a few by training digits that were held out; those runs are not kept. It is no posterior under its
  prior: the divergence of nearest neighbours ends at −76,000 nats, and the weights of the largest layer have a
  deviation of 28 where the prior has 1. And it shows what the slides' attack hides: by that, which moves a pixel by a
  fifth of ε against it, only the published ensemble has fewer errors over ε (37.5 and 32.8 %, MAP 72), by the full
  attack it has as many as MAP (74 and 72 %).
- *BbH is less sure of outliers than others*: did not hold as published, where MNF is less sure of them by far, and
  tells them from digits best (AUROC 0.993; BbH and BbB 0.988, the ensemble 0.987). It held with the library's defaults,
  within chance. With these, which have a generator of a 360th of the parameters and a wide prior, BbH is the least sure
  of digits too, and the fourth of eight as a detector: AUC measures how unsure a network is, AUROC whether it is unsure
  of the right images.
- *BbH is the least vulnerable to attacks*, by 100 attacked images: did not hold, for the ensemble that was trained on
  attacked images is less vulnerable by far. Among those trained as published on plain images BbH is the least
  vulnerable, by the full attack clearly, by the slides' within chance; the ensemble by default, on plain images too, is
  less so still (53 and 55 % of errors, BbH 59 and 61). With the defaults it is the most vulnerable of the slides'
  methods, and the ensemble the least, by the slides' attack within chance. The slides' attack moves a pixel by nearly
  all of ε against MAP and by 0.30 to 0.85 of it against the others, the less the more their functions disagree. *It is
  more uncertain under attack*, which the paper's pictures show: did not hold as published, where at ε = 0.4 of the full
  attack BbH has 1.0 nats of entropy, MNF 1.9, BbB 1.8 and MC-dropout 1.1.
- *BbH and MNF take longest*: as published BbH does on a GPU, 12 times as long as MAP, then the ensemble on attacked
  images, 8.6 times; MNF takes 2.5 times as long, where 30.7 is published. With the defaults both take longest of the
  slides' methods, 2.6 and 3.1 times as long; LIVI takes 3.8 times. The published times of BbB, MNF and BbH hold
  histograms of weights at every step, and those of all methods but the ensemble a check of every number, so that a
  member of the published ensemble takes 0.4 of MAP's time. On CIFAR5 it did not hold in the slides themselves: there
  the ensemble takes 9.8 times as long as MAP, MNF 3.0, BbB 2.0, BbH 1.5 and MC-dropout 1.2. Here CIFAR5 was not timed
  alone: side by side on one H200 the ensemble took 1,015 s and BbH 806 s, where 51,755 and 7,896 are published.
- *The weights of a hypernet correlate*, which is the paper's point, by six weights of each layer over 100 draws: held
  as published, within layers and between them. With the defaults, where most weights are at the prior, it was seen at
  size *small* alone.
- *Five classes of CIFAR-10*: as published the ensemble has 8.56 % of errors (10.18 in the slides), MAP 9.90 (13.58),
  BbB 11.98 (13.78), MC-dropout 12.14 (24.74), BbH 14.90 (13.62: within chance) and MNF 17.18 (12.82). With the defaults
  the ensemble has 7.34, MC-dropout 9.70, iBNN 10.04, MAP 10.18, LIVI 13.30, MNF 14.10, BbB 15.28 and BbH 21.62. Areas
  outside come to the published ones within chance for BbB (0.497 and 0.44) and BbH (0.557 and 0.51) alone: MAP, the
  ensemble and MC-dropout are surer of outliers, by 0.09 to 0.19, MNF is less sure of them, by 0.20. That most errors
  are below the slides may come of what differs from the code: batch normalisation by statistics of training images in
  place of those of each test image (BbH: of the test batch), and no random contrast of channels.
- *MNF on CIFAR5* is published with 12.82 %, fewer than MAP within chance. Here it has 17.18 as published and 14.10 by
  default. The authors' code forgets the divergence of the convolutions, which hold all drawn weights but 325: with that
  fault it has 9.72 %, and with 0.005 of 0.154 nats of epistemic uncertainty it is nearly the plain network that MAP is
  (areas of 0.904 and 0.767, MAP 0.902 and 0.765; the slides have 0.82 and 0.62 for MNF, 0.83 and 0.68 for MAP). So the
  published row may show little of MNF, as that of digits shows less than all of it. With all of the divergence as
  published, the likelihood of training images is best, 0.37 nats, some ten of the 200 epochs after the divergence has
  got all its weight, and then gives way to it: 0.64 nats at the end, while the divergence falls from 80 to 0.5 nats an
  image.
- *BbB and BbH on CIFAR5*. BbB's noise, which starts at σ = 3e-7 as published, takes 130 epochs to be felt: until then
  its likelihood improves as that of MAP does, and it is scored before the bound has converged, at 6.5 nats of
  divergence an image. With σ = softplus(ρ), by which the noise grows 2.4 times as fast, a network had 18.32 %, and by
  default, where its likelihood is best after a quarter of training, BbB has 15.28. BbH as published has an area of
  0.557 outside (0.51 in the slides, within chance) and 0.742 inside (0.68), and underfits: at a rate of 0.0001 its 247
  million parameters have brought the NLL of training images to 0.39 after 200 epochs, where it still falls (MAP 0.18),
  and that of test images to 0.40. It is well calibrated, with little epistemic uncertainty (0.025 nats of 0.415). Here
  too the divergence is negative, after 82 epochs. With the defaults BbH has 21.62. It may be the bound that holds it
  back, as on digits, where a tenth of the divergence halves its errors; at size *small*, where it underfits, a tenth
  changes nothing. LIVI, which succeeds the hypernet, has 13.30 and is well calibrated, with less epistemic uncertainty
  (0.009 nats of 0.36).
- *Who is less sure of outliers tells them better*: did not hold on CIFAR5. By the defaults BbH, MNF and BbB, with most
  errors, are the least sure and the worst detectors (AUROC 0.64 to 0.70); LIVI has 0.71, MAP and MC-dropout 0.74, iBNN
  0.75, the ensemble 0.76. As published MNF, the least sure, is the worst too (0.67), then BbH (0.70); the ensemble,
  surer than all but MAP, is the best (0.75). What a ResNet-14 learns of 2,000 images tells no detectors apart;
  ensembles and MNF are left out at that size, and MC-dropout with the defaults.
""",
    ),
}
