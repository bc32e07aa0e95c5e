// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/tuning"
)

// set gives a field of Options a value that is not its default.
func set(t *testing.T, o *nebulaio.Options, field string, v any) {
	t.Helper()
	f := reflect.ValueOf(o).Elem().FieldByName(field)
	if !f.IsValid() {
		t.Fatalf("nebulaio.Options has no field %s", field)
	}
	f.Set(reflect.ValueOf(v).Convert(f.Type()))
}

func sample(o tuning.Option) any {
	switch o.Kind {
	case tuning.Size:
		return o.Min
	case tuning.Count:
		return o.Max
	case tuning.Choice:
		return o.Words[len(o.Words)-1]
	case tuning.Switch:
		return true // the Go field says No
	case tuning.Numbers:
		return []int{1}
	}
	return "another.so"
}

func TestEveryOptionIsInTheTable(t *testing.T) {
	inGoAlone := []string{"BeforeCuFile"} // a function, which no other language can give
	var listed []string
	for _, o := range tuning.Options() {
		listed = append(listed, o.Field)
	}
	var fields []string
	for f := range reflect.TypeFor[nebulaio.Options]().Fields() {
		if !slices.Contains(inGoAlone, f.Name) {
			fields = append(fields, f.Name)
		}
	}
	if !slices.Equal(listed, fields) {
		t.Errorf("the table has %v\nnebulaio.Options has %v", listed, fields)
	}
}

func TestEveryOptionReachesTheEngineOrTheDevices(t *testing.T) {
	none := nebulaio.Options{}.PartsText()
	seen := map[string]string{}
	for _, o := range tuning.Options() {
		var given nebulaio.Options
		set(t, &given, o.Field, sample(o))
		text := given.PartsText()
		if text == none {
			t.Errorf("%s changes nothing", o.Field)
		}
		if other := seen[text]; other != "" {
			t.Errorf("%s does what %s does", o.Field, other)
		}
		seen[text] = o.Field
	}
}

func TestOptionsHaveTheBoundsOfTheTable(t *testing.T) {
	try := func(o tuning.Option, v any) error {
		var given nebulaio.Options
		set(t, &given, o.Field, v)
		s, err := nebulaio.NewSystem(given)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	refused := func(o tuning.Option, v any, named string) {
		err := try(o, v)
		if nebulaio.KindOf(err) != nebulaio.KindInvalid || !strings.Contains(err.Error(), named) {
			t.Errorf("%s %v gives %v, expected an error of kind Invalid that names %s", o.Field, v, err, named)
		}
	}
	for _, o := range tuning.Options() {
		var good []any
		switch o.Kind {
		case tuning.Size, tuning.Count:
			good = []any{0, o.Min, o.Max, o.Default}
			refused(o, o.Min-1, o.Key)
			refused(o, o.Max+1, o.Key)
		case tuning.Choice:
			for _, w := range o.Words {
				if w != "require" { // needs a GPU
					good = append(good, w)
				}
			}
			refused(o, "nonsense", "nonsense")
		}
		for _, v := range good {
			if err := try(o, v); err != nil {
				t.Errorf("%s %v: %v", o.Field, v, err)
			}
		}
	}
}

func TestHeaderListsEveryOption(t *testing.T) {
	text, err := os.ReadFile("include/nebulaio/nebulaio.h")
	if err != nil {
		t.Fatal(err)
	}
	end := strings.Index(string(text), "int32_t nebulaio_system_open(")
	comment := string(text[strings.LastIndex(string(text[:end]), "/*"):end])
	var keys []string
	for _, o := range tuning.Options() {
		keys = append(keys, o.Key)
		line := regexp.MustCompile(`"` + o.Key + `"[^\n]*`).FindString(comment)
		if line == "" {
			t.Errorf("the comment of nebulaio_system_open does not name %q", o.Key)
		}
		if o.Kind == tuning.Size && !strings.Contains(line, fmt.Sprintf("default %d", o.Default)) {
			t.Errorf("%q: expected default %d in %q", o.Key, o.Default, line)
		}
		for _, w := range o.Words {
			if !strings.Contains(line, `"`+w+`"`) {
				t.Errorf("%q: expected %q in %q", o.Key, w, line)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^ \*   "(\w+)"`).FindAllStringSubmatch(comment, -1) {
		if !slices.Contains(keys, m[1]) {
			t.Errorf("the header names %q, which is no option", m[1])
		}
	}
}

func TestPythonTakesEveryOption(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("python/nebulaio/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	options := read("_options.py")
	keywords := func(text, begin, end string) string {
		_, text, _ = strings.Cut(text, begin)
		text, _, _ = strings.Cut(text, end)
		return text
	}
	list := func(name string) []string {
		var out []string
		for _, m := range regexp.MustCompile(`"(\w+)"`).FindAllStringSubmatch(keywords(options, name+": Final = (", ")"),
			-1) {
			out = append(out, m[1])
		}
		return out
	}
	places := map[string]string{tuning.Configure: keywords(read("__init__.py"), "def configure(", ") -> None:"),
		tuning.GPUDirectClient: keywords(read("gpudirect.py"), "def __init__(", ") -> None:")}
	for _, o := range tuning.Options() {
		if o.Python == "" {
			continue
		}
		if !strings.Contains(places[o.Python], " "+o.Key+": ") {
			t.Errorf("%s has no keyword %s", o.Python, o.Key)
		}
		if o.Python != tuning.Configure {
			continue
		}
		found := false
		switch o.Kind {
		case tuning.Size:
			found = slices.Contains(list("_SIZES"), o.Key)
		case tuning.Count:
			found = slices.Contains(list("_COUNTS"), o.Key)
		case tuning.Choice:
			found = strings.Contains(options, fmt.Sprintf(`"%s": ("%s")`, o.Key, strings.Join(o.Words, `", "`)))
		}
		if !found {
			t.Errorf("_options.py has %s not as a %s of the table", o.Key, o.Kind)
		}
	}
}
