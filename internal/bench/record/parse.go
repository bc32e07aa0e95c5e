// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Tool is the value of File.Tool in every file of benchmark results.
const Tool = "nebulaio bench"

// MaxFile and the other bounds limit the benchmark results that Parse accepts. The bounds of Parse are far above the
// needs of a benchmark, and keep a hostile file from exhausting the reader's memory.
const (
	MaxFile = 64 << 20 // bytes of JSON
	maxList = 200_000  // elements of any list
	maxRuns = 2000     // a report shows, a comparison pairs each of them
	maxStep = 1000     // points of a sweep, and sweeps
	maxText = 64 << 10 // bytes of any text
	maxReal = 1e15     // any number with a fraction; more cannot be drawn
)

// Parse reads the JSON form of a File and checks it.
//
// Parse accepts only a known schema, finite numbers of plausible size that are not negative, sorted lists, and sweep
// points that name a run. Parse ignores unknown fields, because a later version may have added them. An error of
// Parse has the kind Corrupt and names the file, the field, the offending value and the expected form.
func Parse(name string, b []byte) (*File, error) {
	bad := func(msg string) error { return errs.New(errs.Corrupt, "read benchmark", name, msg) }
	if len(b) > MaxFile {
		return nil, bad(fmt.Sprintf("has %d bytes; expected at most %d", len(b), MaxFile))
	}
	// The head is read alone first: a file of another schema or tool is told
	// so, not that one of its fields has an unexpected type.
	var head struct {
		Schema *int    `json:"schema"`
		Tool   *string `json:"tool"`
	}
	if err := decode(b, &head); err != nil {
		return nil, bad(err.Error())
	}
	switch {
	case head.Tool == nil || head.Schema == nil:
		return nil, errs.New(errs.Corrupt, "read benchmark", name,
			`has no "tool" or no "schema"; expected the JSON of a benchmark`).
			WithFix("give a file that nebulaio bench wrote with --json")
	case *head.Tool != Tool:
		return nil, bad(fmt.Sprintf("tool is %q; expected %q", *head.Tool, Tool))
	case *head.Schema != Schema:
		return nil, errs.New(errs.Corrupt, "read benchmark", name,
			fmt.Sprintf("schema is %d; expected %d", *head.Schema, Schema)).
			WithFix("read it with the version of nebulaio that wrote it")
	}
	f := &File{}
	if err := decode(b, f); err != nil {
		return nil, bad(err.Error())
	}
	if err := f.Check(); err != nil {
		return nil, bad(err.Error())
	}
	return f, nil
}

// decode reads exactly one JSON value and says which field has the wrong type.
func decode(b []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(into); err != nil {
		var typ *json.UnmarshalTypeError
		switch {
		case errors.As(err, &typ) && typ.Field != "":
			return fmt.Errorf("%s is %s; expected %s", typ.Field, typ.Value, article(typ.Type))
		case errors.As(err, &typ):
			return fmt.Errorf("is a JSON %s; expected an object", typ.Value)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return errors.New("ends before its JSON does; expected one whole object")
		}
		return fmt.Errorf("is not JSON: %w; expected one object", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("goes on after its JSON object; expected one object")
	}
	return nil
}

func article(t reflect.Type) string {
	kinds := map[reflect.Kind]string{reflect.Int: "a whole number", reflect.Int64: "a whole number",
		reflect.Uint64: "a whole number of 0 or more", reflect.Float64: "a number", reflect.String: "text",
		reflect.Bool: "true or false", reflect.Slice: "a list"}
	if kind, ok := kinds[t.Kind()]; ok {
		return kind
	}
	return "an object"
}

// Check returns an error if the File f breaks a rule that Parse enforces. Use Check for a File that was built in
// memory.
func (f *File) Check() error {
	if len(f.Runs) > maxRuns {
		return fmt.Errorf("runs has %d elements; expected at most %d", len(f.Runs), maxRuns)
	}
	if err := checkValue("", reflect.ValueOf(f).Elem()); err != nil {
		return err
	}
	for i := range f.Runs {
		if err := f.Runs[i].check(); err != nil {
			return fmt.Errorf("runs[%d].%w", i, err)
		}
	}
	if len(f.Sweeps) > maxStep {
		return fmt.Errorf("sweeps has %d elements; expected at most %d", len(f.Sweeps), maxStep)
	}
	for i, s := range f.Sweeps {
		if len(s.Points) > maxStep {
			return fmt.Errorf("sweeps[%d].points has %d elements; expected at most %d", i, len(s.Points), maxStep)
		}
		for j, p := range s.Points {
			if p.Run >= len(f.Runs) {
				return fmt.Errorf("sweeps[%d].points[%d].run is %d; expected an index into %d runs", i, j, p.Run, len(f.Runs))
			}
		}
	}
	if f.Train != nil {
		return f.Train.check()
	}
	return nil
}

func (r *Run) check() error {
	if l := r.Latency; l != nil {
		if !(l.P50 <= l.P90 && l.P90 <= l.P99 && l.P99 <= l.P999) {
			return fmt.Errorf("latency has p50 %g, p90 %g, p99 %g, p99.9 %g; expected none below the one before", l.P50, l.P90,
				l.P99, l.P999)
		}
		for i := 1; i < len(l.Buckets); i++ {
			if l.Buckets[i].UpTo <= l.Buckets[i-1].UpTo {
				return fmt.Errorf("latency.buckets[%d].up_to is %g; expected more than %g, the bucket before", i, l.Buckets[i].UpTo,
					l.Buckets[i-1].UpTo)
			}
		}
	}
	for i := 1; i < len(r.Series); i++ {
		if r.Series[i].At <= r.Series[i-1].At {
			return fmt.Errorf("series[%d].at is %g; expected more than %g, the point before", i, r.Series[i].At,
				r.Series[i-1].At)
		}
	}
	return nil
}

func (t *Train) check() error {
	for i, s := range t.Trace {
		if s.Begin > s.End || i > 0 && s.Begin < t.Trace[i-1].Begin {
			return fmt.Errorf("train.trace[%d] goes from %g to %g; expected steps in order, none that ends before it begins", i,
				s.Begin, s.End)
		}
	}
	return nil
}

// checkValue walks all of a value, so that a field added later is bounded too.
func checkValue(path string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type().PkgPath() == "time" {
			return nil
		}
		for i := range v.NumField() {
			tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			if err := checkValue(strings.TrimPrefix(path+"."+tag, "."), v.Field(i)); err != nil {
				return err
			}
		}
	case reflect.Slice:
		if v.Len() > maxList {
			return fmt.Errorf("%s has %d elements; expected at most %d", path, v.Len(), maxList)
		}
		for i := range v.Len() {
			if err := checkValue(fmt.Sprintf("%s[%d]", path, i), v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return checkValue(path, v.Elem())
		}
	case reflect.String:
		if v.Len() > maxText {
			return fmt.Errorf("%s has %d bytes; expected at most %d", path, v.Len(), maxText)
		}
	case reflect.Int, reflect.Int64:
		least := int64(0)
		if strings.HasSuffix(path, "cache.before") || strings.HasSuffix(path, "cache.after") {
			least = -1 // the kernel does not tell
		}
		if v.Int() < least {
			return fmt.Errorf("%s is %d; expected %d or more", path, v.Int(), least)
		}
	case reflect.Float64:
		if n := v.Float(); math.IsNaN(n) || n < 0 || n > maxReal {
			return fmt.Errorf("%s is %g; expected a number from 0 to %g", path, n, float64(maxReal))
		}
	}
	return nil
}
