// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
)

// madeUp is the variable that makes this program one of the made-up commands.
const madeUp = "NEBULAIO_MADE_UP"

// TestMain runs a made-up command in place of the tests, if the environment names one.
func TestMain(m *testing.M) {
	name := os.Getenv(madeUp)
	if name == "" {
		os.Exit(m.Run())
	}
	seconds, err := strconv.ParseFloat(os.Args[1], 64)
	if err == nil {
		// The diagnosed time includes the start of this program, which takes long on a busy machine. The work takes 15
		// times as long as the start, so that the start does not change the verdict.
		seconds = max(seconds, 15*startSeconds())
		err = command(name, time.Now().Add(time.Duration(seconds*float64(time.Second))), os.Args[2:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startSeconds returns how long ago this process began, or 0 if that is not known.
func startSeconds() float64 {
	text, err := os.ReadFile("/proc/self/stat")
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the name may contain spaces
	var now unix.Timespec
	if err != nil || len(fields) < 20 || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	ticks, err := strconv.ParseFloat(fields[19], 64)
	if err != nil {
		return 0
	}
	return max(0, float64(now.Nano())/1e9-ticks/100)
}

// command does what a made-up command does until the given time.
func command(name string, until time.Time, args []string) error {
	switch name {
	case "nothing":
		time.Sleep(time.Until(until))
		return nil
	case "cpu":
		for n := 0; time.Now().Before(until); {
			for range 1 << 16 {
				n += n >> 1
			}
		}
		return nil
	case "compute": // kernels run nearly all the time
		return onGPU(until, args[0], fakegpu.Meters{Busy: 97, MemoryBusy: 40, Receive: 1e9})
	case "copy": // batches come over PCIe, and kernels wait for them
		return onGPU(until, args[0], fakegpu.Meters{Busy: 20, MemoryBusy: 10, Receive: 48e9})
	case "storage":
		return readFile(until, args[0])
	case "ranks":
		return ranks(until)
	case "end":
		return end(until, args[0])
	}
	return fmt.Errorf("no made-up command %q", name)
}

// onGPU lets the fake GPU work while the command waits for it.
func onGPU(until time.Time, state string, at fakegpu.Meters) error {
	if err := steer(state, at); err != nil {
		return err
	}
	time.Sleep(time.Until(until))
	return steer(state, fakegpu.Meters{})
}

// steer replaces the state of the fake GPU in one step, so that no reader sees half of it.
func steer(state string, m fakegpu.Meters) error {
	if err := os.WriteFile(state+".new", []byte(fakegpu.State(m)), 0o600); err != nil {
		return err
	}
	return os.Rename(state+".new", state)
}

// Sizes of the file and of the reads of the storage-bound command.
const (
	fileBytes = 64 << 20
	readBytes = 1 << 20
)

// readFile reads random pieces of a file past the page cache with several threads, as a loader does.
func readFile(until time.Time, name string) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var wait sync.WaitGroup
	failed := make(chan error, 4)
	for range cap(failed) {
		wait.Go(func() {
			page, err := unix.Mmap(-1, 0, readBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			for err == nil && time.Now().Before(until) {
				_, err = unix.Pread(fd, page, rand.Int64N(fileBytes/readBytes)*readBytes)
			}
			failed <- err
		})
	}
	wait.Wait()
	close(failed)
	var all []error
	for err := range failed {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// ranks sends bytes in both directions over loopback, as two ranks that add up gradients do.
func ranks(until time.Time) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	ended := make(chan error, 2)
	rank := func(c net.Conn, err error) {
		if err != nil {
			ended <- err
			return
		}
		defer c.Close()
		go func() { _, _ = io.Copy(io.Discard, c) }()
		gradients := make([]byte, 1<<20)
		for time.Now().Before(until) {
			// The other rank may see the end first and close the connection.
			if _, err := c.Write(gradients); err != nil {
				break
			}
		}
		ended <- nil
	}
	go func() { rank(l.Accept()) }()
	go func() { rank(net.Dial("tcp", l.Addr().String())) }()
	return errors.Join(<-ended, <-ended)
}

// end ends as its argument says: with an exit code, or by a signal that it got from its parent.
func end(until time.Time, how string) error {
	if code, err := strconv.Atoi(how); err == nil {
		os.Exit(code)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	fmt.Println("ready")
	select {
	case <-signals:
		signal.Reset()
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		time.Sleep(time.Until(until)) // the signal ends the sleep
		return errors.New("the signal did not end the program")
	case <-time.After(time.Until(until)):
		return errors.New("no signal came")
	}
}
