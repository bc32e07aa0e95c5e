// SPDX-License-Identifier: Apache-2.0

package nebulaio

import "fmt"

// PartsText describes the options of the engine and the devices that o leads to, for tests.
func (o Options) PartsText() string { return fmt.Sprintf("%+v", o.parts()) }

// RequestText describes what options become on the floor below, for tests.
func RequestText(o any) string {
	var below any
	switch o := o.(type) {
	case ClientOptions:
		below = o.settings()
	case ObjectRead:
		below = o.request()
	case ObjectWrite:
		below = o.request()
	case DraftOptions:
		below = o.request("bucket", "key", 1)
	case LoadOptions:
		return fmt.Sprintf("%+v %+v", o.source(), o.load())
	case StartLoadOptions:
		below = o.model()
	case CreateOptions:
		below = (&ObjectWriter{opt: o}).request()
	default:
		panic(fmt.Sprintf("no text of %T", o))
	}
	return fmt.Sprintf("%+v", below)
}

// FollowedStreams are the streams that a commit follows, by device, for tests.
func (w *ObjectWriter) FollowedStreams() map[string]uint64 {
	out := map[string]uint64{}
	for dev, stream := range w.streams {
		out[dev.Info().ID] = stream
	}
	return out
}
