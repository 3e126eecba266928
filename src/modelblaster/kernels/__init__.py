"""How code is written without a language model: nests, fusion, schedules, moves and the SIMD emitter.

A library step is added to a nest (`builder`, `operators`), the nest is put in memory order (`layout`), a schedule says
how it runs (`schedule`, `moves`), and `emit` writes it in a backend's dialect (`dialect`).
"""
