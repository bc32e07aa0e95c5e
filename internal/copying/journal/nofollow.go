// SPDX-License-Identifier: Apache-2.0

package journal

import "golang.org/x/sys/unix"

// nofollow refuses a symbolic link in place of the journal.
const nofollow = unix.O_NOFOLLOW
