// SPDX-License-Identifier: Apache-2.0

package train

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Spec is what a well-known workload asks of storage, per accelerator.
type Spec struct {
	Name        string        // "unet3d"
	Accelerator string        // "a100", "h100": whose step time it is
	Batch       int           // samples
	SampleBytes int64         // mean; every sample has it here
	StepTime    time.Duration // of one batch
	WantedAU    float64       // the least accelerator utilisation that passes
}

// Workloads are those of the MLPerf Storage benchmark (DLIO), with the batch,
// record size, step time and wanted utilisation of its configurations.
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

// Workload is the one of that name with the step time of that accelerator; ""
// is the h100. Kind NotFound for one there is none of.
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

// Rate is the bytes a second that one accelerator needs when it never waits, 0
// for a step of no time.
func (s Spec) Rate() float64 {
	if s.StepTime <= 0 {
		return 0
	}
	return float64(s.SampleBytes) * float64(s.Batch) / s.StepTime.Seconds()
}
