"""`python -m variantscope` is the command `variantscope`."""

import sys

from variantscope import main

sys.exit(main())
