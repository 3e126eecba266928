"""From a reference program to slots, and from the slots' plans back to a plan for the whole program."""
