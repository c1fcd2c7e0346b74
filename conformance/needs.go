package conformance

import "github.com/embedonce/embedonce/backend"

// need is something that a case can't do without.
type need struct {
	reason string // printed where it isn't met
	met    func(s *Suite) bool
}

var (
	needPlant     = need{"Suite.Plant is not set", func(s *Suite) bool { return s.Plant != nil }}
	needFault     = need{"Suite.Fault is not set", func(s *Suite) bool { return s.Fault != nil }}
	needAtomic    = need{"Info.Atomic is false", func(s *Suite) bool { return s.Want.Atomic }}
	needSnapshot  = need{"Info.SnapshotReads is false", func(s *Suite) bool { return s.Want.SnapshotReads }}
	needDurable   = need{"Info.Durability is none", func(s *Suite) bool { return s.Want.Durability >= backend.SurvivesCrash }}
	needHost      = need{"Info.Reach is one handle", func(s *Suite) bool { return s.Want.Reach >= backend.ReachHost }}
	needNoCopies  = need{"Info.Copies is true", func(s *Suite) bool { return !s.Want.Copies }}
	needOneHandle = need{"Info.Reach is more than one handle", func(s *Suite) bool { return s.Want.Reach == backend.ReachHandle }}
	needCapacity  = need{"Info.Capacity is not set", func(s *Suite) bool { return s.Want.MayEvict && s.Want.Capacity > 0 }}

	needMaxValue = need{"Info.MaxValueBytes is not set", func(s *Suite) bool { return s.Want.MaxValueBytes > 0 }}
	needMaxItems = need{"Info.MaxBatchItems is not set", func(s *Suite) bool { return s.Want.MaxBatchItems > 0 }}
	needMaxBytes = need{"Info.MaxBatchBytes is not set", func(s *Suite) bool { return s.Want.MaxBatchBytes > 0 }}
)
