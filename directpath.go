// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"os"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/doctor"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
)

// directPath judges whether the disk under a file can reach a GPU without the CPU. It reads /proc and /sys, because
// opening libcufile would make a context on every GPU. An unclear case is not plausible.
func directPath(path string, dev device.Info) transfer.DirectPath {
	gpu, err := strconv.Atoi(strings.TrimPrefix(dev.ID, "cuda:"))
	if err != nil {
		return transfer.DirectPath{Reason: dev.ID + " is no GPU"}
	}
	m, err := facts.Glance(path, os.Getenv)
	if err != nil {
		return transfer.DirectPath{Reason: err.Error(), Fix: errs.FixOf(err)}
	}
	m.Survey = &device.Survey{Devices: []device.Info{dev}}
	p, err := doctor.Judge(facts.Live(), m, gpu)
	if err != nil {
		return transfer.DirectPath{Reason: err.Error(), Fix: errs.FixOf(err)}
	}
	return transfer.DirectPath{Plausible: p.Plausible, Reason: p.Reason, Fix: p.Fix}
}
