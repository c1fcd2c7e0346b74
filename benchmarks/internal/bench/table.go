package bench

import (
	"context"
	"fmt"
	"time"
)

// Side is one of those that are measured beside each other.
type Side struct {
	Case string
	// Measure returns one figure, in the unit of the cell.
	Measure func(ctx context.Context) (float64, error)
}

// Table gathers figures over all repetitions.
type Table struct {
	run   *Run
	order []Result // identities, as they were first seen
	cells map[Result][]float64
}

// NewTable returns an empty table.
func (r *Run) NewTable() *Table {
	return &Table{run: r, cells: make(map[Result][]float64)}
}

// Beside measures each side once, one after the other, so that a change of the
// machine meets all of them; another repetition begins with another side. cell says
// what they have in common.
func (t *Table) Beside(ctx context.Context, repetition int, cell Result, sides ...Side) error {
	figures := make([]float64, len(sides))
	for k := range sides {
		at := (k + repetition) % len(sides)
		figure, err := sides[at].Measure(ctx)
		if err != nil {
			return fmt.Errorf("%s on %q, %d goroutines, %d texts: %w", sides[at].Case, cell.Backend, cell.Goroutines, cell.Texts, err)
		}
		figures[at] = figure
	}
	floor := 0.0
	for i, side := range sides {
		t.Add(cell, side.Case, figures[i])
		if side.Case == CaseFloor {
			floor = figures[i]
		}
	}
	if floor == 0 {
		return nil
	}
	// The quotient of neighbours in time is steadier than that of two medians.
	quotient := cell
	quotient.Metric, quotient.Unit = cell.Metric+" / floor", "ratio"
	for i, side := range sides {
		if side.Case != CaseFloor && side.Case != CaseControl {
			t.Add(quotient, side.Case, figures[i]/floor)
		}
	}
	return nil
}

// Add adds one figure of a side.
func (t *Table) Add(cell Result, side string, figure float64) {
	id := cell.Identity()
	id.Case = side
	if _, seen := t.cells[id]; !seen {
		t.order = append(t.order, id)
	}
	t.cells[id] = append(t.cells[id], figure)
}

// Control measures the control with the cell's goroutines, adds it and returns it.
func (t *Table) Control(ctx context.Context, cell Result, d time.Duration) (float64, error) {
	control, err := Control(ctx, cell.Goroutines, d)
	if err == nil {
		cell.Metric, cell.Unit = "digest", "µs/digest"
		t.Add(cell, CaseControl, control)
	}
	return control, err
}

// Emit hands on a result for each cell and side, in the order in which they were
// first measured, and empties the table.
func (t *Table) Emit() error {
	for _, result := range t.order {
		floor := result
		floor.Case = CaseFloor
		if figures := t.cells[floor]; len(figures) > 0 {
			result.Floor = Summarize(figures).Median
		}
		id := result.Identity()
		result.Summary = Summarize(t.cells[id])
		if err := t.run.Emit(result); err != nil {
			return err
		}
	}
	t.order = nil
	clear(t.cells)
	return nil
}
