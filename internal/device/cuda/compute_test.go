// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/devicetest"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/test/effort"
)

func step(q device.Queue, d time.Duration) error { return q.(device.Stepper).Step(d) }

func TestStepsAreTimedByTheDevice(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	q := devicetest.Queue(t, d)
	a, b, c := devicetest.Stamp(t, q), devicetest.Stamp(t, q), devicetest.Stamp(t, q)
	for _, want := range []time.Duration{20 * time.Millisecond, 250 * time.Microsecond, 0} {
		must(t, errors.Join(a.Record(), step(q, want), b.Record(), step(q, -1), c.Record()))
		if got, err := b.Since(a); err != nil || (got-want).Abs() > time.Microsecond {
			t.Errorf("a step of %v took %v, %v", want, got, err)
		}
		if got, err := c.Since(b); err != nil || got != 0 {
			t.Errorf("a step of no time took %v, %v", got, err)
		}
		if got, err := a.Since(c); err != nil || (got+want).Abs() > time.Microsecond {
			t.Errorf("backwards: %v, %v", got, err)
		}
	}
	if n := g.Count("modules"); n != 1 {
		t.Errorf("%d modules were loaded, expected one for all steps", n)
	}
	if n := g.Count("steps_done"); n != 6 {
		t.Errorf("%d steps were done", n)
	}
	g.CheckIdle()
}

func TestSinceWaitsForTheStep(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	q := devicetest.Queue(t, d)
	a, b := devicetest.Stamp(t, q), devicetest.Stamp(t, q)
	g.HoldSteps()
	must(t, errors.Join(a.Record(), step(q, time.Second), b.Record()))
	g.Await("steps_held", 1)
	got := make(chan time.Duration, 1)
	go func() {
		d, err := b.Since(a)
		if err != nil {
			t.Error(err)
		}
		got <- d
	}()
	select {
	case d := <-got:
		t.Fatalf("the step is held back and took %v", d)
	default:
	}
	g.ReleaseSteps()
	if d := <-got; d != time.Second {
		t.Errorf("took %v", d)
	}
}

func TestCopiesGoOnWhileAStepRunsElsewhere(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	compute, copies := devicetest.Queue(t, d), devicetest.Queue(t, d)
	b, mem := devicetest.Buffer(t, d, 4096), devicetest.HostBytes(t, 4096)
	g.HoldSteps()
	must(t, step(compute, time.Second))
	g.Await("steps_held", 1)
	m := devicetest.Mark(t, copies)
	must(t, errors.Join(copies.CopyIn(b.Ptr(), mem), m.Record(), m.Wait()))
	if n := g.Count("steps_done"); n != 0 {
		t.Errorf("%d steps were done", n)
	}
}

func TestAQueueFollowsAMarkOfAnother(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	d, other := g.Open("cuda:0"), g.Open("cuda:1")
	copies, compute := devicetest.Queue(t, d), devicetest.Queue(t, d)
	b, mem := devicetest.Buffer(t, d, 4096), devicetest.HostBytes(t, 4096)
	m := devicetest.Mark(t, copies)
	follow := compute.(device.Follower)
	must(t, follow.Follow(m)) // never recorded: nothing to wait for
	if n := g.Count("event_waits"); n != 0 {
		t.Fatalf("%d waits for a mark never recorded", n)
	}
	g.CopyTakes(5 * time.Millisecond)
	g.Hold(0)
	end, begin := devicetest.Stamp(t, copies), devicetest.Stamp(t, compute)
	must(t, errors.Join(copies.CopyIn(b.Ptr(), mem), end.Record(), m.Record(), follow.Follow(m), begin.Record(),
		step(compute, time.Millisecond)))
	g.Await("waiting_for_event", 1)
	if g.Count("steps_done") != 0 {
		t.Fatal("the step went ahead of the copy that it follows")
	}
	g.Release()
	must(t, compute.Drain())
	if gap, err := begin.Since(end); err != nil || gap != 0 {
		t.Errorf("the step began %v after the copy, %v", gap, err)
	}
	hq, err := host.New().NewQueue()
	must(t, err)
	defer hq.Close()
	for name, m := range map[string]device.Mark{"another GPU": devicetest.Mark(t, devicetest.Queue(t, other)),
		"host": devicetest.Mark(t, hq)} {
		if err := follow.Follow(m); !errs.Is(err, errs.Invalid) {
			t.Errorf("a mark of %s: %v", name, err)
		}
	}
	if _, err := begin.Since(devicetest.Stamp(t, devicetest.Queue(t, other))); !errs.Is(err, errs.Invalid) {
		t.Errorf("a stamp of another GPU: %v", err)
	}
	if _, err := begin.Since(devicetest.Stamp(t, compute)); !errs.Is(err, errs.Invalid) {
		t.Errorf("a stamp never recorded: %v", err)
	}
}

// A driver without kernels or timing loads as ever and says what it lacks.
func TestOptionalSymbolsMayBeMissing(t *testing.T) {
	effort.Slow(t)
	for _, missing := range []string{"cuModuleLoadData", "cuModuleGetFunction", "cuModuleUnload", "cuLaunchKernel",
		"cuEventElapsedTime_v2"} {
		g := fakegpu.Build(t, fakegpu.Options{Without: []string{missing}})
		s, err := open.New(g.Options(device.Require))
		must(t, err)
		told := false
		for _, f := range s.Survey().Findings {
			told = told || !f.Found && !f.Needed && strings.Contains(f.Detail, missing) && f.Fix != ""
		}
		if !told {
			t.Errorf("the survey does not say that %s is missing", missing)
		}
		must(t, s.Close())
		d := g.Open("cuda:0")
		q, b, mem := devicetest.Queue(t, d), devicetest.Buffer(t, d, 4096), devicetest.HostBytes(t, 4096)
		must(t, errors.Join(q.CopyIn(b.Ptr(), mem), q.Drain()))
		_, timeErr := q.(device.Timer).NewStamp()
		stepErr := step(q, time.Millisecond)
		lacking, fine := stepErr, timeErr
		if missing == "cuEventElapsedTime_v2" {
			lacking, fine = timeErr, stepErr
		}
		if fine != nil {
			t.Errorf("without %s the other fails: %v", missing, fine)
		}
		if !errs.Is(lacking, errs.Unsupported) || !strings.Contains(lacking.Error(), missing) ||
			!strings.Contains(lacking.Error(), "cuda:0") || errs.FixOf(lacking) == "" {
			t.Errorf("without %s: %v", missing, lacking)
		}
	}
}

func TestAKernelThatDoesNotCompileIsExplained(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	q := devicetest.Queue(t, d)
	for _, c := range []struct {
		code      int
		kind      errs.Kind
		text, fix string
	}{
		{fakegpu.NoJIT, errs.Unsupported, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND (221)", "libnvidia-ptxjitcompiler"},
		{fakegpu.InvalidPTX, errs.Unsupported, "CUDA_ERROR_INVALID_PTX (218)", "compute capability"},
		{223, errs.Unsupported, "(223)", "CUDA_DISABLE_PTX_JIT"},
		{fakegpu.OutOfMemory, errs.NoMemory, "CUDA_ERROR_OUT_OF_MEMORY (2)", "free device memory"},
		{fakegpu.LaunchFailed, errs.Device, "cuModuleLoadData", ""},
	} {
		g.Fail("cuModuleLoadData", 0, 1, c.code)
		if err := step(q, 1); !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) ||
			!strings.Contains(errs.FixOf(err), c.fix) {
			t.Errorf("code %d: %v", c.code, err)
		}
	}
	g.Fail("cuModuleGetFunction", 0, 1, fakegpu.InvalidValue)
	if err := step(q, 1); !errs.Is(err, errs.Device) || !strings.Contains(err.Error(), "cuModuleGetFunction") {
		t.Errorf("got %v", err)
	}
	if n := g.Count("modules"); n != 0 {
		t.Errorf("%d modules are left after failures", n)
	}
	must(t, step(q, 1)) // a failure is not remembered
	g.Fail("cuLaunchKernel", 0, 1, fakegpu.LaunchFailed)
	if err := step(q, 1); !errs.Is(err, errs.Device) ||
		!strings.Contains(err.Error(), "queue a step on cuda:0: cuLaunchKernel") {
		t.Errorf("got %v", err)
	}
	s := devicetest.Stamp(t, q)
	must(t, s.Record())
	g.Fail("cuEventElapsedTime_v2", 0, 1, fakegpu.LaunchFailed)
	if _, err := s.Since(s); !errs.Is(err, errs.Device) || !strings.Contains(err.Error(), "cuEventElapsedTime") {
		t.Errorf("got %v", err)
	}
	must(t, q.Drain())
	g.CheckIdle()
}

func TestAKernelThatIsKilledIsADeviceError(t *testing.T) {
	for _, sticky := range []bool{false, true} {
		g, d := fakegpu.OpenOne(t)
		q := devicetest.Queue(t, d)
		m := devicetest.Mark(t, q)
		g.FailStep(1, fakegpu.LaunchTimeout, sticky)
		g.HoldSteps() // else a dead context refuses the record already
		must(t, errors.Join(step(q, time.Millisecond), m.Record()))
		g.ReleaseSteps()
		if err := m.Wait(); !errs.Is(err, errs.Device) || !strings.Contains(err.Error(), "CUDA_ERROR_LAUNCH_TIMEOUT") {
			t.Errorf("sticky %v: %v", sticky, err)
		}
		if err := step(q, 0); sticky && !errs.Is(err, errs.Device) {
			t.Errorf("a dead context took a step: %v", err)
		}
	}
}

func TestCloseUnloadsTheKernel(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	q, err := d.NewQueue()
	must(t, err)
	must(t, errors.Join(step(q, time.Millisecond), q.Close(), d.Close()))
	g.CheckFreed()
	if err := step(q, 0); !errs.Is(err, errs.Closed) {
		t.Errorf("a closed device took a step: %v", err)
	}
}
