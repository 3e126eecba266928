"""The words of the project as types: what travels between the rooms.

Records are frozen and slotted, carry units in their names and hold no behaviour beyond validation. They import
nothing of the rest of the package, no torch and no SDK, so that every room and every worker may know them.
"""
