"""What consolidation is worth: early stopping and usual regularisers beside phases 2 and 3, at a size for two cores.

`plan` says what is trained, from where, and which trainings compete; `family` trains and measures what goes on from
one phase 1, `heads` with which learners; `runner` does so for all of them, in several processes; `results` makes one
file of what there is. Everything that is chosen is chosen on base classes kept out of training.
"""
