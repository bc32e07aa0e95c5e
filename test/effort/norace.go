// SPDX-License-Identifier: Apache-2.0

//go:build !race

package effort

// detector reports whether the race detector is part of this build.
const detector = false
