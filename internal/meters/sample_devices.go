// SPDX-License-Identifier: Apache-2.0

package meters

// Disk has the requests of one block device. A partition is not listed; its requests count for the whole disk.
type Disk struct {
	Name string `json:"name"` // such as nvme0n1
	// Below lists the disks under a device that is made of others, such as md0 or dm-1.
	Below  []string `json:"below,omitempty"`
	Mounts []string `json:"mounts,omitempty"` // mount points of the disk and of its partitions, at most 8

	Reads      uint64 `json:"reads"` // completed requests
	Writes     uint64 `json:"writes"`
	ReadBytes  uint64 `json:"read_bytes"`
	WriteBytes uint64 `json:"write_bytes"`
	ReadMS     uint64 `json:"read_ms"` // total milliseconds of all reads, from request to completion
	WriteMS    uint64 `json:"write_ms"`
	InFlight   uint64 `json:"in_flight"` // requests that are not complete yet
	BusyMS     uint64 `json:"busy_ms"`   // milliseconds in which at least one request was in flight
	QueueMS    uint64 `json:"queue_ms"`  // milliseconds of all requests, summed

	ReadRate     float64 `json:"read_rate"`
	WriteRate    float64 `json:"write_rate"`
	ReadIOPS     float64 `json:"read_iops"`
	WriteIOPS    float64 `json:"write_iops"`
	ReadLatency  float64 `json:"read_latency"` // mean seconds of the completed reads; 0 without reads
	WriteLatency float64 `json:"write_latency"`
	Depth        float64 `json:"depth"` // mean requests in flight
	Busy         float64 `json:"busy"`  // share of the time with at least one request in flight

	// ReadCeiling and WriteCeiling are the measured highest rates of the disk, from "nebulaio bench ceilings". 0 means
	// not measured.
	ReadCeiling  float64 `json:"read_ceiling,omitempty"`
	WriteCeiling float64 `json:"write_ceiling,omitempty"`
	// OfCeiling is the larger share of the two ceilings that is in use; 0 if none was measured.
	OfCeiling  float64 `json:"of_ceiling,omitempty"`
	Rotational bool    `json:"rotational,omitempty"`
}

// Network has the traffic of one network interface or one RDMA port.
type Network struct {
	Name string `json:"name"` // such as eth0, or mlx5_0/1 for an RDMA port
	RDMA bool   `json:"rdma,omitempty"`
	Up   bool   `json:"up"`
	// Virtual is true for an interface without hardware, such as lo, a bridge or a veth.
	Virtual bool `json:"virtual,omitempty"`
	// Speed is the rate of the link in bytes per second in each direction; 0 means unknown.
	Speed float64 `json:"speed,omitempty"`

	Received uint64 `json:"received"`
	Sent     uint64 `json:"sent"`
	Dropped  uint64 `json:"dropped"`
	Errors   uint64 `json:"errors"`

	ReceiveRate float64 `json:"receive_rate"`
	SendRate    float64 `json:"send_rate"`
	DropRate    float64 `json:"drop_rate"`  // packets per second
	ErrorRate   float64 `json:"error_rate"` // packets per second
	// OfSpeed is the share of the link's rate that the busier direction uses; 0 if the rate is unknown.
	OfSpeed float64 `json:"of_speed,omitempty"`
}

// TCP counts the segments of all TCP connections of the machine.
type TCP struct {
	SentSegments    uint64  `json:"sent_segments"`
	Retransmits     uint64  `json:"retransmits"`
	RetransmitRate  float64 `json:"retransmit_rate"`  // segments per second
	RetransmitShare float64 `json:"retransmit_share"` // share of the sent segments that were repeated
}

// NFS has the requests of one mount of a network file system of type NFS.
type NFS struct {
	Mount  string `json:"mount"`
	Server string `json:"server"`

	Reads           uint64 `json:"reads"` // read requests
	Writes          uint64 `json:"writes"`
	ReadBytes       uint64 `json:"read_bytes"` // bytes that the server sent
	WriteBytes      uint64 `json:"write_bytes"`
	ReadQueueMS     uint64 `json:"read_queue_ms"` // milliseconds of reads before they were sent
	ReadTripMS      uint64 `json:"read_trip_ms"`  // milliseconds from sending to the reply
	WriteTripMS     uint64 `json:"write_trip_ms"`
	Retransmissions uint64 `json:"retransmissions"`

	ReadRate           float64 `json:"read_rate"`
	WriteRate          float64 `json:"write_rate"`
	ReadIOPS           float64 `json:"read_iops"`
	WriteIOPS          float64 `json:"write_iops"`
	ReadQueue          float64 `json:"read_queue"` // mean seconds that a read waited before it was sent
	ReadTrip           float64 `json:"read_trip"`  // mean seconds from sending a read to its reply
	WriteTrip          float64 `json:"write_trip"`
	RetransmissionRate float64 `json:"retransmission_rate"` // requests per second
}

// Lustre has the transfers of one mounted Lustre file system.
type Lustre struct {
	Name       string  `json:"name"` // such as scratch-ffff8881
	ReadBytes  uint64  `json:"read_bytes"`
	WriteBytes uint64  `json:"write_bytes"`
	Reads      uint64  `json:"reads"`
	Writes     uint64  `json:"writes"`
	ReadRate   float64 `json:"read_rate"`
	WriteRate  float64 `json:"write_rate"`
	ReadIOPS   float64 `json:"read_iops"`
	WriteIOPS  float64 `json:"write_iops"`
	// Waiting is the number of requests to the storage targets that are in flight now.
	Waiting int `json:"waiting"`
}

// GPU has the state of one GPU as NVML reports it. -1 means that NVML does not tell.
type GPU struct {
	Index int    `json:"index"` // NVML's index, which nvidia-smi shows too
	Model string `json:"model,omitempty"`
	PCI   string `json:"pci,omitempty"`
	// Busy is the share of the last sampling period of the driver in which a kernel ran.
	Busy float64 `json:"busy"`
	// MemoryBusy is the share of the period in which GPU memory was read or written.
	MemoryBusy  float64 `json:"memory_busy"`
	MemoryUsed  int64   `json:"memory_used"`
	MemoryTotal int64   `json:"memory_total"`
	Watts       float64 `json:"watts"`
	Celsius     float64 `json:"celsius"`
	SMClock     float64 `json:"sm_clock_mhz"`
	// Slowed names the reasons for which the driver lowers the clocks now, such as "power cap"; empty if none.
	Slowed []string `json:"slowed,omitempty"`

	Received     uint64  `json:"pcie_received"` // bytes to the GPU over PCIe; 0 if NVML has no counter
	Sent         uint64  `json:"pcie_sent"`
	ReceiveRate  float64 `json:"pcie_receive_rate"`
	SendRate     float64 `json:"pcie_send_rate"`
	LinkGen      int     `json:"link_gen"`
	LinkWidth    int     `json:"link_width"`
	LinkGenMax   int     `json:"link_gen_max"`
	LinkWidthMax int     `json:"link_width_max"`
	// LinkRate is the usable rate of the link in one direction at its best speed and present width, in bytes per second.
	LinkRate float64 `json:"link_rate"`
	// ReceiveCeiling and SendCeiling are the measured highest rates of copies to and from the GPU; 0 if not measured.
	ReceiveCeiling float64 `json:"receive_ceiling,omitempty"`
	SendCeiling    float64 `json:"send_ceiling,omitempty"`
	// OfLink is the share of the ceiling, or of LinkRate without a ceiling, that the busier direction uses; -1 if unknown.
	OfLink float64 `json:"of_link"`
}

// CuFile has the transfers between storage and GPU memory that the kernel module nvidia-fs has made.
type CuFile struct {
	Reads      uint64  `json:"reads"`
	Writes     uint64  `json:"writes"`
	ReadBytes  uint64  `json:"read_bytes"`
	WriteBytes uint64  `json:"write_bytes"`
	Errors     uint64  `json:"errors"`
	ReadRate   float64 `json:"read_rate"`
	WriteRate  float64 `json:"write_rate"`
	ReadIOPS   float64 `json:"read_iops"`
	WriteIOPS  float64 `json:"write_iops"`
	ErrorRate  float64 `json:"error_rate"` // errors per second
	// Counted is false if nvidia-fs is loaded but does not count (rw_stats_enabled is 0).
	Counted bool `json:"counted"`
}

// CGroup has the limits of one control group and how often they made its processes wait. Only the control groups of
// the busiest processes, and of those that wait, are read, with their parents.
type CGroup struct {
	Path string `json:"path"`
	// Quota is the number of processors that the group may use; 0 means no limit.
	Quota            float64 `json:"cpu_quota,omitempty"`
	Periods          uint64  `json:"periods"` // periods of the quota
	Throttled        uint64  `json:"throttled"`
	ThrottledSeconds float64 `json:"throttled_seconds"`
	CPUSeconds       float64 `json:"cpu_seconds"`

	ThrottledShare float64 `json:"throttled_share"` // share of the periods in which the group was stopped
	ThrottledRate  float64 `json:"throttled_rate"`  // seconds of stopped time per second, summed over processors
	CPU            float64 `json:"cpu"`             // processors that the group used on average

	IOLimit     string `json:"io_limit,omitempty"`     // the limits of I/O, as io.max shows them
	MemoryLimit uint64 `json:"memory_limit,omitempty"` // 0 means no limit
	MemoryUsed  uint64 `json:"memory_used,omitempty"`
	// MemoryStalls counts how often the group reached its memory limit and had to free memory.
	MemoryStalls    uint64  `json:"memory_stalls"`
	MemoryStallRate float64 `json:"memory_stall_rate"`
	// IOFull is the share of the time in which all threads of the group waited for I/O; -1 if unknown.
	IOFull    float64  `json:"io_full"`
	Processes []string `json:"processes,omitempty"` // names of the processes that were seen in the group, at most 8
}

// Server has what a NebulaIO server reports at its console address.
type Server struct {
	Address  string  `json:"address"`
	Requests uint64  `json:"requests"`
	Failed   uint64  `json:"failed"` // requests that were answered with a status of 500 or higher
	Received uint64  `json:"received"`
	Sent     uint64  `json:"sent"`
	InFlight float64 `json:"in_flight"`

	RequestRate float64 `json:"request_rate"` // requests per second
	FailRate    float64 `json:"fail_rate"`
	ReceiveRate float64 `json:"receive_rate"`
	SendRate    float64 `json:"send_rate"`
	// DoorBytes counts the bytes that clients of the door moved, by route, and DoorRates has their rates.
	DoorBytes   map[string]uint64  `json:"door_bytes,omitempty"`
	DoorRates   map[string]float64 `json:"door_rates,omitempty"`
	DoorClients float64            `json:"door_clients"`
}
