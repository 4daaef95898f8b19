"""The verifier: loading, proving and measuring a model, and its ragged forward."""
