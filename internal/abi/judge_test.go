// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/abi"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestALoopIsJudgedByTheLibrary(t *testing.T) {
	text, err := abi.JudgeLoop(`{"rounds": [{"batches": 1, "wait": 0.9, "copy": 0, "step": 0.1}], "loader_alone": null,
		"in_process": 1, "decode": 0.9, "read": 0.1, "tolerated_idle": 0.1,
		"variants": [{"name": "as configured", "alone": 1, "together": 1, "wait": 0.9, "copy": 0, "step": 0.1}]}`)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Bound, Why string
		Next       []string
		Agree      float64
		Step       struct{ Number int }
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Bound != "cpu-bound" || got.Agree != 1 || !strings.Contains(got.Why, "900.0 ms") || len(got.Next) == 0 ||
		got.Step.Number != 5 {
		t.Errorf("%s: %+v", text, got)
	}
}

func TestALoopThatCannotBeJudgedIsRefused(t *testing.T) {
	for text, part := range map[string]string{
		``:                       "rounds",
		`[]`:                     "object",
		`{`:                      "JSON",
		`{"rounds": []}`:         "0 rounds",
		`{"rounds": 3}`:          "rounds",
		`{"round": []}`:          "round",
		`{"tolerated_idle": {}}`: "tolerated_idle",
		`{"rounds": [{"batches": 1, "wait": -1, "copy": 0, "step": 1}], "variants": [{"name": "x"}], "tolerated_idle": 0.1}`: "-1 seconds",
		`{"rounds": [{"batches": 0, "wait": 1, "copy": 0, "step": 1}], "variants": [{"name": "x"}], "tolerated_idle": 0.1}`:  "0 batches",
		`{"rounds": [{"batches": 1, "wait": 1, "copy": 0, "step": 1}], "variants": [], "tolerated_idle": 0.1}`:               "0 variants",
		`{"rounds": [{"batches": 1, "wait": 1, "copy": 0, "step": 1}], "variants": [{"name": "x"}], "tolerated_idle": 1}`:    "tolerated_idle is 1",
	} {
		if _, err := abi.JudgeLoop(text); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, expected %q", text, err, part)
		}
	}
}
