"""What every family uses: adding nodes, checks, layout rules, precision. Holds no operators."""
