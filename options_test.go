// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/test/closing"
)

// everyField runs the test of each exported field of an options type, and fails for a field without one.
func everyField[T any](t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	for f := range reflect.TypeFor[T]().Fields() {
		test, ok := tests[f.Name]
		if !ok {
			t.Errorf("no test shows what %s.%s does", reflect.TypeFor[T]().Name(), f.Name)
			continue
		}
		t.Run(f.Name, test)
		delete(tests, f.Name)
	}
	for name := range tests {
		t.Errorf("%s has no field %s", reflect.TypeFor[T]().Name(), name)
	}
}

// passedOn checks that each field of an options type, but for some, changes what the floor below is asked for.
func passedOn[T any](t *testing.T, but ...string) {
	t.Helper()
	var none T
	fields := reflect.TypeFor[T]()
	seen := map[string]string{nebulaio.RequestText(none): "nothing"}
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		if slices.Contains(but, name) {
			continue
		}
		var given T
		fill := reflect.ValueOf(&given).Elem().Field(i)
		fill.Set(another(t, fill.Type()))
		text := nebulaio.RequestText(given)
		if other, ok := seen[text]; ok {
			t.Errorf("%s.%s asks for what %s asks for", fields.Name(), name, other)
		}
		seen[text] = name
	}
}

// another is a value that is not zero.
func another(t *testing.T, of reflect.Type) reflect.Value {
	t.Helper()
	v := reflect.New(of).Elem()
	switch of.Kind() {
	case reflect.String:
		v.SetString("another")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint64:
		v.SetUint(7)
	case reflect.Slice:
		return reflect.Append(v, another(t, of.Elem()))
	case reflect.Map:
		v.Set(reflect.MakeMap(of))
		v.SetMapIndex(another(t, of.Key()), another(t, of.Elem()))
	case reflect.Func:
		return reflect.MakeFunc(of, func([]reflect.Value) []reflect.Value { return nil })
	case reflect.Struct:
		v.Field(0).Set(another(t, v.Field(0).Type()))
	default:
		t.Fatalf("no value of %v", of)
	}
	return v
}

func TestOptionsArePassedOn(t *testing.T) {
	passedOn[nebulaio.ClientOptions](t)
	passedOn[nebulaio.ObjectRead](t)
	passedOn[nebulaio.ObjectWrite](t)
	passedOn[nebulaio.DraftOptions](t)
	passedOn[nebulaio.LoadOptions](t)
	passedOn[nebulaio.StartLoadOptions](t)
	// TestCreateOptionsAct has those that say who moves the bytes and where they lie.
	passedOn[nebulaio.CreateOptions](t, "System", "Options", "Client", "ClientOptions", "Device")
}

// is checks the kind and the text of an error.
func is(t *testing.T, err error, want nebulaio.ErrorSentinel, text string) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
		t.Errorf("%v; expected an error of kind %v with %q", err, want, text)
	}
}

func hostSystem(t *testing.T) *nebulaio.System {
	t.Helper()
	return newSystem(t, nebulaio.Options{Devices: nebulaio.DevicesOff})
}

func openSource(t *testing.T, sys *nebulaio.System, path string, o nebulaio.SourceOptions) *nebulaio.Source {
	t.Helper()
	s, err := sys.OpenSource(t.Context(), path, o)
	return closing.AtEnd(t, s, err)
}

// shapes returns the shape of each chosen tensor.
func shapes(s *nebulaio.Source) map[string][]int64 {
	out := map[string][]int64{}
	for _, x := range s.Tensors() {
		out[x.Name] = x.Shape
	}
	return out
}

func TestSourceOptionsAct(t *testing.T) {
	sys := hostSystem(t)
	dir := t.TempDir()
	path := writeModel(dir)
	chosen := func(want map[string][]int64, o nebulaio.SourceOptions) func(*testing.T) {
		return func(t *testing.T) {
			if got := shapes(openSource(t, sys, path, o)); !reflect.DeepEqual(got, want) {
				t.Errorf("%v, expected %v", got, want)
			}
		}
	}
	everyField[nebulaio.SourceOptions](t, map[string]func(*testing.T){
		"Device": func(t *testing.T) {
			_, err := sys.OpenSource(t.Context(), path, nebulaio.SourceOptions{Device: "cuda:9"})
			is(t, err, nebulaio.ErrNotFound, "cuda:9")
		},
		"Tensors": chosen(map[string][]int64{"weight": {2, 3}}, nebulaio.SourceOptions{Tensors: []string{"w*"}}),
		"Slices": chosen(map[string][]int64{"weight": {2, 1}, "bias": {2}},
			nebulaio.SourceOptions{Slices: []nebulaio.Slice{{Tensor: "weight", Ranges: []nebulaio.Range{{0, -1}, {1, 2}}}}}),
		"Shards": chosen(map[string][]int64{"weight": {1, 3}, "bias": {2}},
			nebulaio.SourceOptions{Shards: []nebulaio.Shard{{Tensor: "weight", Rank: 1, World: 2}}}),
		"Lenient": func(t *testing.T) {
			loose := filepath.Join(t.TempDir(), "loose.safetensors")
			const header = ` {"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`
			if err := os.WriteFile(loose, append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, header+"x"...),
				0o600); err != nil {
				t.Fatal(err)
			}
			_, err := sys.OpenSource(t.Context(), loose, nebulaio.SourceOptions{})
			is(t, err, nebulaio.ErrCorrupt, "")
			openSource(t, sys, loose, nebulaio.SourceOptions{Lenient: true})
		},
		"More": func(t *testing.T) {
			if n := len(openSource(t, sys, path, nebulaio.SourceOptions{More: []string{path}}).Files()); n != 2 {
				t.Errorf("%d files", n)
			}
		},
		"Client": func(t *testing.T) {
			o := nebulaio.SourceOptions{Client: nebulaio.ClientOptions{Door: "ajar"}}
			_, err := sys.OpenSource(t.Context(), "s3://bucket/key", o)
			is(t, err, nebulaio.ErrInvalid, "ajar")
			c, err := sys.NewClient(nebulaio.ClientOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = c.OpenSource(t.Context(), "bucket", "key", o)
			is(t, err, nebulaio.ErrInvalid, "System.OpenSource")
		},
	})
}

func TestSelectOptionsAct(t *testing.T) {
	sys := hostSystem(t)
	path := writeModel(t.TempDir())
	src := openSource(t, sys, path, nebulaio.SourceOptions{More: []string{path}})
	chosen := func(want map[string][]int64, files int, o nebulaio.SelectOptions) func(*testing.T) {
		return func(t *testing.T) {
			s, err := src.Select(o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if got := shapes(s); !reflect.DeepEqual(got, want) || len(s.Files()) != files {
				t.Errorf("%v in %d files, expected %v in %d", got, len(s.Files()), want, files)
			}
		}
	}
	both := map[string][]int64{"weight": {2, 3}, "bias": {2}}
	everyField[nebulaio.SelectOptions](t, map[string]func(*testing.T){
		"Tensors": chosen(map[string][]int64{"bias": {2}}, 2, nebulaio.SelectOptions{Tensors: []string{"b*"}}),
		"Slices": chosen(map[string][]int64{"weight": {1, 3}, "bias": {2}}, 2,
			nebulaio.SelectOptions{Slices: []nebulaio.Slice{{Tensor: "weight", Ranges: []nebulaio.Range{{0, 1}}}}}),
		"Shards": chosen(map[string][]int64{"weight": {2, 3}, "bias": {1}}, 2,
			nebulaio.SelectOptions{Shards: []nebulaio.Shard{{Tensor: "bias", Rank: 0, World: 2}}}),
		"Names": chosen(map[string][]int64{"weight": {2, 3}}, 2, nebulaio.SelectOptions{Names: []string{"weight"}}),
		"Files": chosen(both, 1, nebulaio.SelectOptions{Files: []int{1}}),
	})
}

func TestSourceLoadOptionsAct(t *testing.T) {
	sys := hostSystem(t)
	src := openSource(t, sys, writeModel(t.TempDir()), nebulaio.SourceOptions{})
	load := func(o nebulaio.SourceLoadOptions) (nebulaio.ModelReport, error) {
		m, err := src.Load(t.Context(), o)
		if err != nil {
			return nebulaio.ModelReport{}, err
		}
		return m.Report(), m.Free()
	}
	everyField[nebulaio.SourceLoadOptions](t, map[string]func(*testing.T){
		"Route": func(t *testing.T) {
			if r, err := load(nebulaio.SourceLoadOptions{Route: nebulaio.RouteBuffered}); err != nil ||
				r.Asked.Route != nebulaio.RouteBuffered {
				t.Errorf("%+v, %v", r.Asked, err)
			}
		},
		"Cache": func(t *testing.T) {
			if r, err := load(nebulaio.SourceLoadOptions{Cache: nebulaio.CacheKeep}); err != nil ||
				r.Asked.Cache != nebulaio.CacheKeep {
				t.Errorf("%+v, %v", r.Asked, err)
			}
		},
		"Verify": func(t *testing.T) {
			_, err := load(nebulaio.SourceLoadOptions{Verify: true})
			is(t, err, nebulaio.ErrNotFound, "crc64nvme")
		},
		"Progress": func(t *testing.T) {
			var last int64
			if _, err := load(nebulaio.SourceLoadOptions{Progress: func(done, _ int64) { last = done }}); err != nil ||
				last != 32 {
				t.Errorf("%d bytes, %v", last, err)
			}
		},
	})
}

// closedSystem is a system that moves no bytes any more.
func closedSystem(t *testing.T) *nebulaio.System {
	t.Helper()
	s, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOpenOptionsAct(t *testing.T) {
	sys := hostSystem(t)
	path := writeModel(t.TempDir())
	read := func(url string, o nebulaio.OpenOptions) (nebulaio.ObjectReport, error) {
		ob, err := nebulaio.Open(t.Context(), url, o)
		if err != nil {
			return nebulaio.ObjectReport{}, err
		}
		m, err := sys.Alloc(t.Context(), "host", 64)
		if err != nil {
			t.Fatal(err)
		}
		_, err = ob.Read(t.Context(), m.Ptr(), m.Size(), 0)
		return ob.Report(), errors.Join(err, ob.Close(), m.Free())
	}
	c, err := sys.NewClient(nebulaio.ClientOptions{Endpoint: "http://localhost:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	host := nebulaio.OpenOptions{System: sys, Device: "host"}
	everyField[nebulaio.OpenOptions](t, map[string]func(*testing.T){
		"System": func(t *testing.T) {
			_, err := read(path, nebulaio.OpenOptions{System: closedSystem(t), Device: "host"})
			is(t, err, nebulaio.ErrClosed, "")
			_, err = read(path, nebulaio.OpenOptions{System: hostSystem(t), Client: c})
			is(t, err, nebulaio.ErrInvalid, "Client alone")
		},
		"Options": func(t *testing.T) {
			_, err := read(path, nebulaio.OpenOptions{Options: nebulaio.Options{IO: "carrier pigeon"}})
			is(t, err, nebulaio.ErrInvalid, "carrier pigeon")
			_, err = read(path, nebulaio.OpenOptions{System: sys, Options: nebulaio.Options{Workers: 1}})
			is(t, err, nebulaio.ErrInvalid, "Options")
		},
		"Client": func(t *testing.T) {
			_, err := read("nebula://localhost:2/bucket/key", nebulaio.OpenOptions{Client: c})
			is(t, err, nebulaio.ErrInvalid, "http://localhost:1")
		},
		"ClientOptions": func(t *testing.T) {
			o := nebulaio.ClientOptions{Door: "ajar"}
			_, err := read("s3://bucket/key", nebulaio.OpenOptions{System: sys, ClientOptions: o})
			is(t, err, nebulaio.ErrInvalid, "ajar")
			_, err = read("s3://bucket/key", nebulaio.OpenOptions{Client: c, ClientOptions: o})
			is(t, err, nebulaio.ErrInvalid, "ClientOptions")
		},
		"Version": func(t *testing.T) { // objectsByName reads versions of objects
			o := host
			o.Version = "1"
			_, err := read(path, o)
			is(t, err, nebulaio.ErrInvalid, "version")
		},
		"Device": func(t *testing.T) {
			_, err := read(path, nebulaio.OpenOptions{System: sys, Device: "cuda:9"})
			is(t, err, nebulaio.ErrNotFound, "cuda:9")
		},
		"Route": func(t *testing.T) {
			o := host
			o.Route = nebulaio.RouteBuffered
			if r, err := read(path, o); err != nil || r.Asked.Route != nebulaio.RouteBuffered {
				t.Errorf("%+v, %v", r.Asked, err)
			}
		},
	})
}

func TestCreateOptionsAct(t *testing.T) {
	sys := hostSystem(t)
	m, err := sys.Alloc(t.Context(), "host", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	c, err := sys.NewClient(nebulaio.ClientOptions{Endpoint: "http://localhost:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	path := filepath.Join(t.TempDir(), "made")
	create := func(url string, o nebulaio.CreateOptions) (nebulaio.ObjectReport, error) {
		w, err := nebulaio.Create(t.Context(), url, m.Size(), o)
		if err != nil {
			return nebulaio.ObjectReport{}, err
		}
		if err = w.WriteFrom(t.Context(), m.Ptr(), m.Size(), 0, nebulaio.PieceOptions{}); err == nil {
			err = w.Commit(t.Context())
		}
		return w.Report(), errors.Join(err, w.Abort())
	}
	refused := func(url string, o nebulaio.CreateOptions, kind nebulaio.ErrorSentinel, text string) func(*testing.T) {
		return func(t *testing.T) {
			_, err := create(url, o)
			is(t, err, kind, text)
		}
	}
	const object = "s3://bucket/key"
	everyField[nebulaio.CreateOptions](t, map[string]func(*testing.T){
		"System": refused(path, nebulaio.CreateOptions{System: closedSystem(t), Device: "host"}, nebulaio.ErrClosed,
			""),
		"Options": refused(path, nebulaio.CreateOptions{Options: nebulaio.Options{IO: "carrier pigeon"}},
			nebulaio.ErrInvalid, "carrier pigeon"),
		"Client": refused("nebula://localhost:2/b/k", nebulaio.CreateOptions{Client: c}, nebulaio.ErrInvalid,
			"http://localhost:1"),
		"ClientOptions": refused(object, nebulaio.CreateOptions{ClientOptions: nebulaio.ClientOptions{Door: "ajar"}},
			nebulaio.ErrInvalid, "ajar"),
		"Device": refused(path, nebulaio.CreateOptions{System: sys, Device: "cuda:9"}, nebulaio.ErrNotFound, "cuda:9"),
		"Route": func(t *testing.T) {
			r, err := create(path, nebulaio.CreateOptions{System: sys, Device: "host", Route: nebulaio.RouteBuffered})
			if err != nil || r.Asked.Route != nebulaio.RouteBuffered {
				t.Errorf("%+v, %v", r.Asked, err)
			}
		},
		// TestOptionsArePassedOn shows that objects have them.
		"ContentType": refused(path, nebulaio.CreateOptions{ContentType: "text/plain"}, nebulaio.ErrInvalid, "content type"),
		"Metadata": refused(path, nebulaio.CreateOptions{Metadata: map[string]string{"a": "b"}}, nebulaio.ErrInvalid,
			"metadata"),
		"IfMatch":     refused(path, nebulaio.CreateOptions{IfMatch: "x"}, nebulaio.ErrInvalid, "conditions"),
		"IfNoneMatch": refused(path, nebulaio.CreateOptions{IfNoneMatch: "*"}, nebulaio.ErrInvalid, "conditions"),
	})
}

func TestPieceOptionsAct(t *testing.T) {
	p := places(t)["cuda"]
	followed := func(o nebulaio.PieceOptions) (map[string]uint64, error) {
		w, err := nebulaio.Create(t.Context(), filepath.Join(t.TempDir(), "f"), 4096,
			nebulaio.CreateOptions{System: p.sys, Device: "cuda:0"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		err = w.WriteFrom(t.Context(), p.ptr, 4096, 0, o)
		return w.FollowedStreams(), err
	}
	stream := func(t *testing.T) {
		got, err := followed(nebulaio.PieceOptions{Stream: 5, HasStream: true})
		none, err2 := followed(nebulaio.PieceOptions{Stream: 5})
		if err != nil || err2 != nil || got["cuda:0"] != 5 || len(none) != 0 {
			t.Errorf("%v, %v; %v, %v", got, err, none, err2)
		}
	}
	everyField[nebulaio.PieceOptions](t, map[string]func(*testing.T){
		"Device": func(t *testing.T) {
			_, err := followed(nebulaio.PieceOptions{Device: "cuda:9"})
			is(t, err, nebulaio.ErrNotFound, "cuda:9")
		},
		"Stream": stream, "HasStream": stream,
	})
}

func TestFileAndMoveOptionsAct(t *testing.T) {
	p := places(t)["host"]
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(o nebulaio.FileOptions, m nebulaio.MoveOptions) (nebulaio.MoveReport, error) {
		f, err := p.sys.OpenFile(path, o)
		if err != nil {
			return nebulaio.MoveReport{}, err
		}
		defer f.Close()
		move, err := f.StartRead(t.Context(), p.ptr, 4096, 0, m)
		if err != nil {
			return nebulaio.MoveReport{}, err
		}
		return move.Report(), move.Wait()
	}
	everyField[nebulaio.FileOptions](t, map[string]func(*testing.T){
		"Write": func(t *testing.T) {
			f := openFile(t, p, path, nebulaio.FileOptions{})
			if _, err := f.Write(t.Context(), p.ptr, 1, 0); err == nil {
				t.Error("a file that is open for reading was written")
			}
			if _, err := openFile(t, p, path, nebulaio.FileOptions{Write: true}).Write(t.Context(), p.ptr, 1, 0); err != nil {
				t.Error(err)
			}
		},
		"Create": func(t *testing.T) {
			missing := filepath.Join(dir, "missing")
			_, err := p.sys.OpenFile(missing, nebulaio.FileOptions{Write: true})
			is(t, err, nebulaio.ErrNotFound, "missing")
			_, err = p.sys.OpenFile(missing, nebulaio.FileOptions{Create: true})
			is(t, err, nebulaio.ErrInvalid, "writing")
			openFile(t, p, missing, nebulaio.FileOptions{Write: true, Create: true})
		},
		"Truncate": func(t *testing.T) {
			full := filepath.Join(dir, "full")
			if err := os.WriteFile(full, []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
			if n, err := openFile(t, p, full, nebulaio.FileOptions{Write: true, Truncate: true}).Size(); n != 0 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		},
		"Device": func(t *testing.T) {
			_, err := read(nebulaio.FileOptions{Device: "cuda:9"}, nebulaio.MoveOptions{})
			is(t, err, nebulaio.ErrNotFound, "cuda:9")
		},
		"Route": func(t *testing.T) {
			if r, err := read(nebulaio.FileOptions{Route: nebulaio.RouteBuffered}, nebulaio.MoveOptions{}); err != nil ||
				r.Asked.Route != nebulaio.RouteBuffered {
				t.Errorf("%+v, %v", r.Asked, err)
			}
		},
	})
	inStream := func(t *testing.T) { // TestFileInStream has a GPU
		r, err := read(nebulaio.FileOptions{}, nebulaio.MoveOptions{Device: "host", Stream: 1, HasStream: true,
			InStream: true})
		if err != nil || len(r.Refusals) == 0 || r.Refusals[0].What != "cufile" {
			t.Errorf("%+v, %v", r.Refusals, err)
		}
	}
	everyField[nebulaio.MoveOptions](t, map[string]func(*testing.T){
		"Device": func(t *testing.T) {
			_, err := read(nebulaio.FileOptions{}, nebulaio.MoveOptions{Device: "cuda:9"})
			is(t, err, nebulaio.ErrNotFound, "cuda:9")
		},
		"Route": func(t *testing.T) {
			if r, err := read(nebulaio.FileOptions{}, nebulaio.MoveOptions{Route: nebulaio.RouteBuffered}); err != nil ||
				r.Asked.Route != nebulaio.RouteBuffered {
				t.Errorf("%+v, %v", r.Asked, err)
			}
		},
		"Stream": inStream, "HasStream": inStream, "InStream": inStream,
	})
}

func TestSaveOptionsAct(t *testing.T) {
	sys := hostSystem(t)
	tensors := []nebulaio.SaveTensor{{Name: "w", DType: nebulaio.U8, Shape: []int64{3}, Bytes: []byte{1, 2, 3}}}
	save := func(t *testing.T, o nebulaio.SaveOptions) (path string, r nebulaio.ModelReport) {
		t.Helper()
		path = filepath.Join(t.TempDir(), "m.safetensors")
		r, err := sys.Save(t.Context(), path, tensors, o)
		if err != nil {
			t.Fatal(err)
		}
		return path, r
	}
	everyField[nebulaio.SaveOptions](t, map[string]func(*testing.T){
		"Metadata": func(t *testing.T) {
			path, _ := save(t, nebulaio.SaveOptions{Metadata: map[string]string{"by": "us"}})
			if m := openSource(t, sys, path, nebulaio.SourceOptions{}).Metadata(); m["by"] != "us" {
				t.Errorf("%v", m)
			}
		},
		"NoChecksums": func(t *testing.T) {
			path, _ := save(t, nebulaio.SaveOptions{NoChecksums: true})
			if _, err := os.Stat(path + ".crc64nvme"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%v", err)
			}
		},
		"Align": func(t *testing.T) {
			path, _ := save(t, nebulaio.SaveOptions{Align: 8})
			if h := openSource(t, sys, path, nebulaio.SourceOptions{}).Headers(); h[0].DataStart >= 4096 {
				t.Errorf("the data begin at %d", h[0].DataStart)
			}
		},
		"Route": func(t *testing.T) {
			if _, r := save(t, nebulaio.SaveOptions{Route: nebulaio.RouteBuffered}); r.Asked.Route != nebulaio.RouteBuffered {
				t.Errorf("%+v", r.Asked)
			}
		},
		"Streams": func(t *testing.T) { // TestSaveFromGPUsAndHostTogether has GPUs
			_, err := sys.Save(t.Context(), filepath.Join(t.TempDir(), "m"), tensors,
				nebulaio.SaveOptions{Streams: map[string]uint64{"cuda:9": 1}})
			is(t, err, nebulaio.ErrNotFound, "cuda:9")
		},
		"Client": func(t *testing.T) {
			_, err := sys.Save(t.Context(), "s3://bucket/key", tensors,
				nebulaio.SaveOptions{Client: nebulaio.ClientOptions{Door: "ajar"}})
			is(t, err, nebulaio.ErrInvalid, "ajar")
		},
		"Progress": func(t *testing.T) {
			var last int64
			save(t, nebulaio.SaveOptions{Progress: func(done, _ int64) { last = done }})
			if last == 0 {
				t.Error("no bytes were reported")
			}
			called := make(chan int64, 100)
			job, err := sys.StartSave(t.Context(), filepath.Join(t.TempDir(), "m"), tensors,
				nebulaio.SaveOptions{Progress: func(done, _ int64) { called <- done }})
			if err != nil {
				t.Fatal(err)
			}
			if err := job.Wait(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-called:
			case <-time.After(time.Minute):
				t.Error("StartSave does not call Progress")
			}
		},
	})
}
