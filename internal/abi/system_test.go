// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/nebulaio/nebulaio/internal/tuning"
)

// TestEveryOptionHasItsKey gives each key of the table and looks for its value in the library's options.
func TestEveryOptionHasItsKey(t *testing.T) {
	for _, o := range tuning.Options() {
		var give, want any
		switch o.Kind {
		case tuning.Size, tuning.Count:
			give, want = o.Max, o.Max
		case tuning.Choice:
			give, want = o.Words[1], o.Words[1]
		case tuning.Switch:
			give, want = false, true // Go's field says No
		case tuning.Numbers:
			give, want = []int{3}, []int{3}
		case tuning.Text:
			give, want = "x.so", "x.so"
		}
		text, err := json.Marshal(map[string]any{o.Key: give})
		if err != nil {
			t.Fatal(err)
		}
		got, err := systemOptions(string(text))
		if err != nil {
			t.Fatal(err)
		}
		v := reflect.ValueOf(got)
		for i := range v.NumField() {
			field, name := v.Field(i), v.Type().Field(i).Name
			if name != o.Field && !field.IsZero() {
				t.Errorf("%s sets %s too", text, name)
			}
			if name == o.Field && !reflect.DeepEqual(field.Interface(),
				reflect.ValueOf(want).Convert(field.Type()).Interface()) {
				t.Errorf("%s sets %s to %v", text, name, field)
			}
		}
	}
	on, err := systemOptions(`{"enable_p2p":true}`)
	if err != nil || on.NoP2P {
		t.Errorf("enable_p2p true: %+v, %v", on, err)
	}
}
