// SPDX-License-Identifier: Apache-2.0

// Package cufile binds NVIDIA's libcufile (GPUDirect Storage) at run time, without
// cgo and without the toolkit. Its symbols are a struct. Symbols of newer releases are
// optional, and each missing one has its own message.
//
// The library works on the CUDA context that is current on the calling thread
// and reports some failures in errno, which belongs to a thread too. Every call
// that needs either runs inside Contexts.WithContext, which locks the thread.
//
// Opening the driver creates a context on every visible GPU, starts threads and writes
// a log file. Its settings belong to the whole process. So this package opens it only
// on request, sets no environment variables, and refuses settings once any part of the
// process has opened it.
package cufile

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/dl"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Library is libcufile with the symbols we use. All methods are safe for
// concurrent use, as the library is.
type Library struct {
	lib *dl.Library
	fn  symbols

	mu       sync.Mutex // guards what follows
	sessions int64      // of ours that have the driver open
	batched  bool       // one of them made a batch
	held     bool       // the driver is left open by the last of them
	counting int        // of ours that count
	level    int        // of statistics to go back to, -1 if it was not changed
}

type symbols struct {
	driverOpen, driverClose, handleRegister, handleDeregister dl.Func
	bufRegister, bufDeregister, read, write                   dl.Func
	driverGetProperties, errnoLocation                        dl.Func

	// Of later releases: 0 if the library does not have them.
	useCount, getVersion                                               dl.Func
	getSizeT, getBool, getString, setSizeT, setBool, setString         dl.Func
	setStatsLevel, getStatsLevel, statsStart, statsStop, statsReset    dl.Func
	statsL1, statsL2, statsL3                                          dl.Func
	readAsync, writeAsync, streamRegister, streamDeregister            dl.Func
	batchSetUp, batchSubmit, batchGetStatus, batchCancel, batchDestroy dl.Func
}

// binding is where a symbol goes and its names, newest first. since is the
// release that added it; empty where every release has it.
type binding struct {
	dst   *dl.Func
	since string
	names []string
}

func (s *symbols) bindings() []binding {
	return []binding{
		{&s.driverOpen, "", []string{"cuFileDriverOpen"}},
		// The header renames the second version to the first.
		{&s.driverClose, "", []string{"cuFileDriverClose_v2", "cuFileDriverClose"}},
		{&s.driverGetProperties, "", []string{"cuFileDriverGetProperties"}},
		{&s.handleRegister, "", []string{"cuFileHandleRegister"}},
		{&s.handleDeregister, "", []string{"cuFileHandleDeregister"}},
		{&s.bufRegister, "", []string{"cuFileBufRegister"}},
		{&s.bufDeregister, "", []string{"cuFileBufDeregister"}},
		{&s.read, "", []string{"cuFileRead"}},
		{&s.write, "", []string{"cuFileWrite"}},
		{&s.errnoLocation, "", []string{"__errno_location"}}, // of the C library below it

		{&s.batchSetUp, "1.2", []string{"cuFileBatchIOSetUp"}},
		{&s.batchSubmit, "1.2", []string{"cuFileBatchIOSubmit"}},
		{&s.batchGetStatus, "1.2", []string{"cuFileBatchIOGetStatus"}},
		{&s.batchCancel, "1.2", []string{"cuFileBatchIOCancel"}},
		{&s.batchDestroy, "1.2", []string{"cuFileBatchIODestroy"}},
		{&s.useCount, "1.4", []string{"cuFileUseCount"}},
		{&s.readAsync, "1.7", []string{"cuFileReadAsync"}},
		{&s.writeAsync, "1.7", []string{"cuFileWriteAsync"}},
		{&s.streamRegister, "1.7", []string{"cuFileStreamRegister"}},
		{&s.streamDeregister, "1.7", []string{"cuFileStreamDeregister"}},
		{&s.getVersion, "1.8", []string{"cuFileGetVersion"}},
		{&s.getSizeT, "1.14", []string{"cuFileGetParameterSizeT"}},
		{&s.getBool, "1.14", []string{"cuFileGetParameterBool"}},
		{&s.getString, "1.14", []string{"cuFileGetParameterString"}},
		{&s.setSizeT, "1.14", []string{"cuFileSetParameterSizeT"}},
		{&s.setBool, "1.14", []string{"cuFileSetParameterBool"}},
		{&s.setString, "1.14", []string{"cuFileSetParameterString"}},
		{&s.setStatsLevel, "1.15", []string{"cuFileSetStatsLevel"}},
		{&s.getStatsLevel, "1.15", []string{"cuFileGetStatsLevel"}},
		{&s.statsStart, "1.15", []string{"cuFileStatsStart"}},
		{&s.statsStop, "1.15", []string{"cuFileStatsStop"}},
		{&s.statsReset, "1.15", []string{"cuFileStatsReset"}},
		{&s.statsL1, "1.15", []string{"cuFileGetStatsL1"}},
		{&s.statsL2, "1.15", []string{"cuFileGetStatsL2"}},
		{&s.statsL3, "1.15", []string{"cuFileGetStatsL3"}},
	}
}

const installFix = "install NVIDIA's libcufile (package libcufile-<CUDA version> or gds-tools, or the wheel " +
	"nvidia-cufile); in a container bind it in"

// LibraryNames are the names under which the library is looked for: by the
// loader first, then where CUDA's packages put it.
func LibraryNames() []string {
	arch := map[string]string{"amd64": "x86_64-linux", "arm64": "sbsa-linux"}[runtime.GOARCH]
	names := []string{"libcufile.so.0", "libcufile.so"}
	for _, dir := range []string{"/usr/local/cuda/lib64", "/usr/local/cuda/targets/" + arch + "/lib"} {
		names = append(names, dir+"/libcufile.so.0", dir+"/libcufile.so")
	}
	return names
}

// Look says where the library is, without opening it. It searches
// LD_LIBRARY_PATH and the usual folders; what only the loader's cache knows is
// not seen, so not found here does not mean that Find fails.
func Look(env func(string) string, names ...string) device.Finding {
	f := device.Finding{Name: names[0], Detail: "not in the usual folders", Fix: installFix}
	dirs := filepath.SplitList(env("LD_LIBRARY_PATH"))
	dirs = append(dirs, "/lib64", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib",
		"/usr/local/lib")
	for _, n := range names {
		candidates := []string{n}
		if !strings.Contains(n, "/") {
			candidates = candidates[:0]
			for _, d := range dirs {
				candidates = append(candidates, filepath.Join(d, n))
			}
		}
		for _, c := range candidates {
			if st, err := os.Stat(c); err == nil && st.Mode().IsRegular() {
				return device.Finding{Name: filepath.Base(n), Found: true, Detail: c + "; not opened"}
			}
		}
	}
	return f
}

// Find loads the library and its symbols and does not open the driver. Kind
// Unsupported, with a fix, if it is missing or lacks what every release has.
func Find(names ...string) (*Library, error) {
	lib, err := dl.Open(names...)
	if err != nil {
		return nil, &errs.Error{Kind: errs.Unsupported, Op: "use cuFile", Msg: "the library was not found", Err: err,
			Fix: installFix}
	}
	l := &Library{lib: lib, level: -1}
	var missing []string
	for _, b := range l.fn.bindings() {
		if *b.dst = lib.Lookup(b.names...); *b.dst == 0 && b.since == "" {
			missing = append(missing, b.names[0])
		}
	}
	if len(missing) > 0 {
		return nil, errs.New(errs.Unsupported, "use cuFile", lib.Name(), "missing "+strings.Join(missing, ", ")).
			WithFix("the library found is not a complete libcufile; reinstall it, or remove a stub from LD_LIBRARY_PATH")
	}
	return l, nil
}

// Name is the name under which the library was found.
func (l *Library) Name() string { return l.lib.Name() }

// need returns an error where this release lacks one of the functions.
func (l *Library) need(what string, fns ...*dl.Func) error {
	for _, b := range l.fn.bindings() {
		for _, fn := range fns {
			if b.dst == fn && *fn == 0 {
				return errs.New(errs.Unsupported, what, l.Name(),
					fmt.Sprintf("%s is missing; release %s of libcufile has it, this is %s", b.names[0], b.since, l.Version())).
					WithFix("install libcufile " + b.since + " or newer")
			}
		}
	}
	return nil
}

// ptr hands the address of v to C for the time of the call.
func ptr[T any](v *T) unsafe.Pointer { return unsafe.Pointer(v) }

// Contexts lends a device's CUDA context: it runs f on a locked thread with
// that context current and leaves the thread as it was.
type Contexts interface {
	WithContext(f func() error) error
}
