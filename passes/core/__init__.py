"""What passes of several families use: records, rules, readers, costs. No passes."""
