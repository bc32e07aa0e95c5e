// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// openDevices opens the devices of a save or write, each once.
type openDevices struct {
	sys      *System
	op, path string // for errors
	byName   map[string]device.Device
}

// open returns the device with this name. The memory to save is on a known device, so "auto" is no name.
func (o *openDevices) open(ctx context.Context, id string) (device.Device, error) {
	if d, ok := o.byName[id]; ok {
		return d, nil
	}
	if id == "" || id == "auto" {
		what := "tensor"
		if o.op == "write" {
			what = "piece"
		}
		return nil, errs.New(errs.Invalid, o.op, o.path, "a "+what+"'s device is \""+id+"\"; expected host, cuda or cuda:N")
	}
	d, err := o.sys.sys.Devices.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	if o.byName == nil {
		o.byName = map[string]device.Device{}
	}
	o.byName[id] = d
	return d, nil
}

// streams returns the caller's streams by device. A device with two streams by two names is an error.
func (o *openDevices) streams(ctx context.Context, given map[string]uint64) (map[device.Device]uint64, error) {
	out := map[device.Device]uint64{}
	for id, stream := range given {
		d, err := o.open(ctx, id)
		if err != nil {
			return nil, err
		}
		if other, ok := out[d]; ok && other != stream {
			return nil, errs.New(errs.Invalid, o.op, o.path, fmt.Sprintf(
				"%s has two streams, %d and %d, by two names; expected one", d.Info().ID, min(other, stream), max(other, stream)))
		}
		out[d] = stream
	}
	return out, nil
}
