// SPDX-License-Identifier: Apache-2.0

package pickle

import (
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// TestValues reads what Python's pickle.dumps writes in several protocols.
func TestValues(t *testing.T) {
	list := func(v ...any) *List { return &List{v} }
	for _, x := range []struct {
		name, pickle string
		want         any
	}{
		{"None", "N.", nil},
		{"protocol 0 list", "(lp0\nI1\naI01\naL-7L\naF1.5\naVtext\np1\na.", list(int64(1), true, int64(-7), 1.5, "text")},
		{"protocol 2 tuple", "\x80\x02K\x01M\x00\x01J\xff\xff\xff\xff\x87q\x00.", list(int64(1), int64(256), int64(-1))},
		{"protocol 4 dict", "\x80\x04\x95\x0e\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94K\x01\x8c\x01b\x94K\x02u.",
			&Dict{[]any{"a", "b"}, []any{int64(1), int64(2)}}},
		{"memo", "\x80\x04]\x94(\x8c\x02xy\x94h\x01e.", list("xy", "xy")},
		{"long", "\x80\x02\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80.", int64(math.MinInt64)},
		{"long of 9 bytes", "\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.", Big{[]byte{0, 0, 0, 0, 0, 0, 0, 0, 1}}},
		{"long of no bytes", "\x80\x02\x8a\x00.", int64(0)},
		{"float", "\x80\x04G?\xf8\x00\x00\x00\x00\x00\x00.", 1.5},
		{"bytes", "\x80\x04C\x02\x00\xff.", []byte{0, 0xff}},
		{"set", "\x80\x04\x8f\x94(K\x01K\x02\x90.", list(int64(1), int64(2))},
		{"class", "\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.",
			&Object{Class: &Class{"os", "system"}, Args: list("id")}},
		{"object", "\x80\x02cm\nC\n)\x81}X\x01\x00\x00\x00aK\x07sb.",
			&Object{Class: &Class{"m", "C"}, Args: &List{}, State: &Dict{[]any{"a"}, []any{int64(7)}}}},
		{"OrderedDict", "\x80\x02ccollections\nOrderedDict\n)RK\x01K\x02s.",
			&Object{Class: &Class{"collections", "OrderedDict"}, Args: &List{}, State: &Dict{[]any{int64(1)}, []any{int64(2)}}}},
	} {
		got, err := Parse(x.name, []byte(x.pickle))
		if err != nil || !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: %#v, %v; expected %#v", x.name, got, err, x.want)
		}
	}
}

func TestBrokenPickles(t *testing.T) {
	for name, b := range map[string]string{"empty": "", "no stop": "N", "no value": ".", "a mark": "(.",
		"short text": "X\xff\xff\xff\xffab",
		"huge text":  "\x8d\xff\xff\xff\xff\xff\xff\xff\xffab", "no mark": "t.", "no memo": "h\x07.",
		"append to a number": "K\x01K\x02a.",
		"odd dict":           "}(K\x01u.", "unknown": "\xff.", "short line": "I12", "not a number": "Ix\n.",
		"mark below":   "K\x01(\x86.",
		"build a list": "]}b.", "global of numbers": "K\x01K\x02\x93."} {
		if v, err := Parse(name, []byte(b)); !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, %v", name, v, err)
		}
	}
	if _, err := Parse("long", []byte(strings.Repeat("N0", MostSteps/2)+"N.")); !errs.Is(err, errs.Unsupported) {
		t.Errorf("too many steps: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	b, err := os.ReadFile("../testdata/stock.metadata")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("(lp0\nI1\naI01\naL-7L\naF1.5\naVtext\np1\na."))
	f.Add([]byte("\x80\x02cm\nC\n)\x81}X\x01\x00\x00\x00aK\x07sb."))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Parse("fuzzed", b)
		if (err == nil) == errs.Is(err, errs.Corrupt) || err != nil && v != nil {
			t.Errorf("%v, %v", v, err)
		}
	})
}
