// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"encoding/json"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// JudgeLoop is nebulaio_judge_loop.
func JudgeLoop(text string) ([]byte, error) {
	if text == "" {
		return nil, errs.New(errs.Invalid, "judge", "training loop", `the text is empty; expected an object with "rounds"`)
	}
	var loop bottleneck.Loop
	if err := decode(text, &loop); err != nil {
		return nil, err
	}
	v, err := loop.Judge()
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
