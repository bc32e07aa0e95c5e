// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// loopback sends bytes over TCP on this machine. Its rate is the limit of everything that passes a local socket.
func loopback(ctx context.Context, o CeilingOptions, _ record.Machine) ([]record.Limit, []string, error) {
	streams := max(1, min(runtime.NumCPU()/2, 4))
	var rounds []float64
	for range o.Rounds {
		if ctx.Err() != nil {
			break
		}
		v, err := loopbackRound(streams)
		if err != nil {
			return nil, []string{"loopback was not measured: " + err.Error()}, nil
		}
		rounds = append(rounds, v)
	}
	how := fmt.Sprintf("%s over TCP on 127.0.0.1, %s at a time, %s a round", counted(streams, "stream"),
		units.Bytes(units.MiB), units.Bytes(loopbackBytes))
	return []record.Limit{limitOf(record.Loopback, "loopback", "host", how, rounds)}, nil, nil
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// loopbackBytes is the number of bytes that one round sends.
const loopbackBytes = 2 * units.GiB

func loopbackRound(streams int) (gbps float64, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, errs.Wrap("listen on", "127.0.0.1", err)
	}
	defer l.Close()
	var in, out []net.Conn
	defer func() {
		for _, c := range append(in, out...) {
			_ = c.Close()
		}
	}()
	for range streams {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return 0, errs.Wrap("connect to", l.Addr().String(), err)
		}
		out = append(out, c)
		s, err := l.Accept()
		if err != nil {
			return 0, errs.Wrap("accept on", l.Addr().String(), err)
		}
		in = append(in, s)
	}
	each := int64(loopbackBytes) / int64(streams)
	failed := make([]error, 2*streams)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range streams {
		wg.Go(func() {
			buf := make([]byte, units.MiB)
			for left := each; left > 0; left -= int64(len(buf)) {
				if _, err := out[i].Write(buf[:min(left, int64(len(buf)))]); err != nil {
					failed[i] = err
					return
				}
			}
		})
		wg.Go(func() {
			buf := make([]byte, units.MiB)
			for left := each; left > 0; {
				n, err := in[i].Read(buf)
				if left -= int64(n); err != nil && (err != io.EOF || left > 0) {
					failed[streams+i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return units.GBps(each*int64(streams), time.Since(began)), errors.Join(failed...)
}
