// SPDX-License-Identifier: Apache-2.0

package bottleneck

// Step is one of the ten steps of tuning a job. The steps repeat until the job is fast enough.
type Step struct {
	Number int    `json:"number"` // 1 to 10
	Title  string `json:"title"`  // what the step is
	Do     string `json:"do"`     // what to do in this step for this verdict
}

// titles are the ten steps, in order.
var titles = [10]string{
	"establish a baseline",
	"profile the run on all its GPUs",
	"look into single kernels",
	"find the cause",
	"apply one fix",
	"measure again after every change",
	"update software, and verify",
	"use what the hardware offers",
	"watch production",
	"write down what was learned",
}

// Steps returns the titles of the ten steps of tuning, in order.
func Steps() []string { return titles[:] }

// stepFor returns the next step after a verdict. do is the advice of the verdict, most promising first.
//
// The first two steps come before a verdict: without a clear one they are still to do. A compute-bound job goes on with
// its kernels. For communication the cause is still open, because a slow network and too much traffic look the same.
// The other verdicts name the cause, so that a fix is next.
func stepFor(b Bound, do []string) Step {
	number := map[Bound]int{Unclear: 1, Nothing: 2, Compute: 3, Communication: 4, Storage: 5, Copy: 5, CPU: 5}[b]
	s := Step{Number: number, Title: titles[number-1]}
	if len(do) > 0 {
		s.Do = do[0]
	}
	return s
}

// advice returns what to do about a verdict of Judge, most promising first.
func advice(v Verdict) []string {
	switch v.Bound {
	case Compute:
		return []string{
			"look into the kernels that take longest, for example with Nsight Compute: are they limited by memory or by " +
				"arithmetic?",
			"use lower precision, fused kernels, or a larger batch",
		}
	case Communication:
		return []string{
			"halve the batch, then double it: if the rate of the network stays the same, the network is the limit",
			"overlap communication with computation, send larger messages, or compress gradients",
			"use the interface that is nearest to the GPUs, and RDMA if there is any",
		}
	case Copy:
		return []string{
			"pin the host memory of batches, and copy the next batch on its own stream during the step",
			"send fewer bytes: smaller types, or compressed samples that the GPU unpacks",
			"read from storage directly into GPU memory: `nebulaio doctor` says whether this machine can",
		}
	case Storage:
		return storageAdvice(v.Cause)
	case CPU:
		return cpuAdvice(v.Cause)
	case Nothing:
		return []string{
			"record a time line, for example with Nsight Systems or `perf trace`: look for locks and for processes that " +
				"wait for each other",
			"start more work at once: more workers, deeper queues, larger batches",
		}
	}
	return []string{"let the command run for at least ten seconds, with nothing else at work on this machine"}
}

func storageAdvice(c Cause) []string {
	switch c {
	case Writeback:
		return []string{
			"write past the page cache (O_DIRECT), or write less at once: dirty pages are written at the speed of the disk",
			"write checkpoints asynchronously, and to the fastest local disk",
		}
	case RemoteStorage:
		return []string{
			"keep the data on a local disk: `nebulaio warm` copies it there, and a cache in front of the server keeps it",
			"read larger pieces and more of them at once: each request costs a round trip",
		}
	}
	return []string{
		"read more and larger pieces at once: `nebulaio bench` shows what the storage gives, and at which depth",
		"pack small files into large ones (`nebulaio pack`), and read them in sequence",
		"use faster storage, or more memory for the page cache",
	}
}

func cpuAdvice(c Cause) []string {
	switch c {
	case Throttled:
		return []string{
			"raise the CPU quota of the control group or container, or start fewer threads than it has processors",
			"move work off the processors: decode on the GPU, or ahead of time",
		}
	case OneThread:
		return []string{
			"spread the work of the busy thread: more workers (num_workers), or compiled and batched transforms",
			"find what the thread does with `perf record` or `py-spy`",
		}
	case OtherPrograms:
		return []string{
			"stop the other programs, or run the command on a machine of its own",
			"give the command processors of its own, for example with taskset or a cpuset",
		}
	case PageCache:
		return []string{
			"read past the page cache into pinned memory (route direct), or map the files: the processors copy bytes",
			"use more processors for reading, on the memory node of the GPU",
		}
	}
	return []string{
		"move work off the processors: decode on the GPU, or ahead of time, with compiled and batched transforms",
		"use more processors, or fewer threads that compete for them",
	}
}
