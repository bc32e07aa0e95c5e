// SPDX-License-Identifier: Apache-2.0

//go:build !(linux && amd64)

package powercut

import "os/exec"

// Record is not written for this kind of machine.
func Record(*exec.Cmd, string) (*Trace, error) { return nil, ErrRefused }
