"""Tests of FedDaDiL."""
