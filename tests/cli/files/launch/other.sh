#!/bin/bash
make all
