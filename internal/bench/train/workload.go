// SPDX-License-Identifier: Apache-2.0

package train

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Spec describes a well-known training workload on one accelerator by the load that it puts on storage.
type Spec struct {
	Name        string        // name of the workload, such as "unet3d"
	Accelerator string        // accelerator to which StepTime applies: "a100" or "h100"
	Batch       int           // samples per batch
	SampleBytes int64         // size of each simulated sample in bytes: the workload's mean
	StepTime    time.Duration // duration of a training step, which consumes one batch
	WantedAU    float64       // the lowest accelerator utilisation with which the workload passes
}

// Workloads returns the workloads of the MLPerf Storage benchmark (DLIO), with batch, record size, step time and
// required utilisation as in its configuration files.
func Workloads() []Spec {
	return []Spec{
		{"unet3d", "a100", 7, 146_600_628, 636 * time.Millisecond, 0.90},
		{"unet3d", "h100", 7, 146_600_628, 323 * time.Millisecond, 0.90},
		{"resnet50", "a100", 400, 114_660, 435 * time.Millisecond, 0.90},
		{"resnet50", "h100", 400, 114_660, 224 * time.Millisecond, 0.90},
		{"cosmoflow", "a100", 1, 2_828_486, 5510 * time.Microsecond, 0.70},
		{"cosmoflow", "h100", 1, 2_828_486, 3500 * time.Microsecond, 0.70},
	}
}

// Workload returns the workload with the given name and the step time of the given accelerator; "" means h100. If the
// workload is unknown, Workload returns an error of kind NotFound.
func Workload(name, accelerator string) (Spec, error) {
	if accelerator == "" {
		accelerator = "h100"
	}
	var known []string
	for _, w := range Workloads() {
		if strings.EqualFold(w.Name, name) && strings.EqualFold(w.Accelerator, accelerator) {
			return w, nil
		}
		known = append(known, w.Name+" on "+w.Accelerator)
	}
	return Spec{}, errs.New(errs.NotFound, "find workload", strconv.Quote(name),
		fmt.Sprintf("there is none with the step time of %q; expected one of %s", accelerator, strings.Join(known, ", ")))
}

// Rate returns the bytes per second that one accelerator needs in order never to wait; 0 if the step time is 0.
func (s Spec) Rate() float64 {
	if s.StepTime <= 0 {
		return 0
	}
	return float64(s.SampleBytes) * float64(s.Batch) / s.StepTime.Seconds()
}
