"""``python -m overdrive``, the same as the command ``overdrive``."""

from overdrive.cli import main

if __name__ == "__main__":
    main()
