// SPDX-License-Identifier: Apache-2.0

// Package cufile binds NVIDIA's libcufile (GPUDirect Storage) at run time, without cgo and without the CUDA toolkit.
// Symbols of newer releases of libcufile are optional. If a call needs a symbol that libcufile lacks, the error names
// the symbol and the release that has it.
//
// libcufile uses the current CUDA context of the calling thread, and reports some failures in the thread's errno.
// Calls into libcufile run inside Contexts.WithContext, which locks the goroutine to its thread.
//
// Opening the cuFile driver creates a CUDA context on every visible GPU, starts threads and writes a log file. The
// settings of the cuFile driver apply to the whole process. Package cufile opens the cuFile driver only on request
// and sets no environment variables. After any part of the process has opened the cuFile driver, package cufile
// refuses to change the driver's settings.
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

// Library is the loaded libcufile with its symbols. All methods of Library are safe for concurrent use.
type Library struct {
	lib *dl.Library
	fn  symbols

	mu       sync.Mutex // guards the fields below
	sessions int64      // our sessions that have the driver open
	batched  bool       // one of our sessions made a batch
	held     bool       // our last session left the driver open
	counting int        // our sessions that count
	level    int        // the level of statistics to restore; -1 if it was not changed
}

type symbols struct {
	driverOpen, driverClose, handleRegister, handleDeregister dl.Func
	bufRegister, bufDeregister, read, write                   dl.Func
	driverGetProperties, errnoLocation                        dl.Func

	// The symbols below are 0 if the library is too old to have them.
	useCount, getVersion                                               dl.Func
	getSizeT, getBool, getString, setSizeT, setBool, setString         dl.Func
	setStatsLevel, getStatsLevel, statsStart, statsStop, statsReset    dl.Func
	statsL1, statsL2, statsL3                                          dl.Func
	readAsync, writeAsync, streamRegister, streamDeregister            dl.Func
	batchSetUp, batchSubmit, batchGetStatus, batchCancel, batchDestroy dl.Func
}

// binding is the variable of a symbol and the symbol's names, the newest first. since is the release that added the
// symbol, or empty if every release has it.
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
		{&s.errnoLocation, "", []string{"__errno_location"}}, // a symbol of the C library

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

// LibraryNames returns the names under which Find looks for libcufile, in order. LibraryNames lists file names for
// the dynamic loader first, then paths in the folders of CUDA's packages.
func LibraryNames() []string {
	arch := map[string]string{"amd64": "x86_64-linux", "arm64": "sbsa-linux"}[runtime.GOARCH]
	names := []string{"libcufile.so.0", "libcufile.so"}
	for _, dir := range []string{"/usr/local/cuda/lib64", "/usr/local/cuda/targets/" + arch + "/lib"} {
		names = append(names, dir+"/libcufile.so.0", dir+"/libcufile.so")
	}
	return names
}

// Look looks for libcufile in LD_LIBRARY_PATH and the usual folders, without loading the library. Find may succeed
// even if Look finds nothing, because Look does not read the dynamic loader's cache.
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

// Find loads libcufile and its symbols, and does not open the cuFile driver. Find fails with kind Unsupported and a
// fix if libcufile is missing, or lacks a symbol that every release has.
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

// Name returns the file name under which libcufile was found.
func (l *Library) Name() string { return l.lib.Name() }

// need returns an error if this release of the library lacks one of the functions.
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

// ptr returns the address of v for a call of C.
func ptr[T any](v *T) unsafe.Pointer { return unsafe.Pointer(v) }

// Contexts runs functions with the CUDA context of one device as the current context. WithContext runs f on a locked
// thread with the device's context as the current one, then restores the previous context.
type Contexts interface {
	WithContext(f func() error) error
}
