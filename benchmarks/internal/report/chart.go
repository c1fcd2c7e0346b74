package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"regexp"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/embedonce/embedonce/benchmarks/internal/bench"
)

// colors can be told apart by those who see few of them (Okabe and Ito 2008).
var colors = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff},
	color.RGBA{0x00, 0x00, 0x00, 0xff}, color.RGBA{0xf0, 0xe4, 0x42, 0xff},
}

var fileName = regexp.MustCompile(`^[a-z0-9-]+$`)

// logFrom is how many times the largest figure is the smallest where the axis is
// better logarithmic.
const logFrom = 30

// chart draws a line for each series over the values of x where these are numbers,
// else groups of bars. A line shows medians, and from the least to the largest figure.
func (all *Results) chart(page *Page, file, title, x, series string, filters []string) (string, error) {
	if !fileName.MatchString(file) {
		return "", fmt.Errorf("chart %q: a file's name has small letters, digits and - alone, and no extension", file)
	}
	file += ".svg"
	if page.Charts[file] != nil {
		return "", fmt.Errorf("chart %s is there twice", file)
	}
	g, xField, _, err := all.grid(x, series, filters)
	if err != nil {
		return "", fmt.Errorf("chart %s: %w", file, err)
	}
	p, err := plotOf(g, title, xField.heading)
	if err != nil {
		return "", fmt.Errorf("chart %s: %w", file, err)
	}
	canvas := vgsvg.New(16*vg.Centimeter, 9*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return "", fmt.Errorf("chart %s: %w", file, err)
	}
	page.Charts[file] = svg.Bytes()
	return fmt.Sprintf("![%s](charts/%s)", title, file), nil
}

// spread is the points of a series with their error bars.
type spread struct {
	plotter.XYs
	plotter.YErrors
}

func plotOf(g *grid, title, xLabel string) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = xLabel
	p.Y.Label.Text = g.unit
	p.Legend.Top = true
	p.Legend.Padding = vg.Points(2)
	for _, style := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		style.Variant = "Sans"
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal.Color = color.Gray{0xdd}
	p.Add(grid)

	_, notNumbers := strconv.Atoi(g.rows[0])
	least, most := math.Inf(1), 0.0
	for s, name := range g.columns {
		var points spread
		heights := make(plotter.Values, len(g.rows))
		for i, row := range g.rows {
			r, ok := g.cells[[2]string{row, name}]
			if !ok {
				continue
			}
			heights[i] = r.Median
			points.XYs = append(points.XYs, plotter.XY{X: float64(i), Y: r.Median})
			points.YErrors = append(points.YErrors, struct{ Low, High float64 }{r.Median - r.Min, r.Max - r.Median})
			least, most = min(least, r.Min), max(most, r.Max)
		}
		style := draw.LineStyle{Color: colors[s%len(colors)], Width: vg.Points(1.5)}
		var err error
		if notNumbers == nil {
			err = addLine(p, shown(name), points, style, s)
		} else {
			err = addBars(p, shown(name), heights, style, s, len(g.columns))
		}
		if err != nil {
			return nil, err
		}
	}

	ticks := make([]plot.Tick, len(g.rows))
	for i, row := range g.rows {
		ticks[i] = plot.Tick{Value: float64(i), Label: shown(row)}
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.X.Min, p.X.Max = -0.5, float64(len(g.rows))-0.5
	if notNumbers == nil && least > 0 && most > logFrom*least {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, powers{}
		p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(least))), math.Pow(10, math.Ceil(math.Log10(most)+0.3))
	} else {
		p.Y.Tick.Marker = grouped{}
		p.Y.Min, p.Y.Max = 0, most*(1.1+0.07*float64(len(g.columns))) // room for the legend
	}
	return p, nil
}

func addLine(p *plot.Plot, name string, points spread, style draw.LineStyle, s int) error {
	line, dots, err := plotter.NewLinePoints(points.XYs)
	if err != nil {
		return err
	}
	line.LineStyle = style
	dots.GlyphStyle = draw.GlyphStyle{Color: style.Color, Radius: vg.Points(2.5), Shape: draw.CircleGlyph{}}
	if s >= len(colors) {
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}
	bars, err := plotter.NewYErrorBars(points)
	if err != nil {
		return err
	}
	bars.Color = style.Color
	p.Add(line, dots, bars)
	p.Legend.Add(name, line, dots)
	return nil
}

func addBars(p *plot.Plot, name string, heights plotter.Values, style draw.LineStyle, s, all int) error {
	width := vg.Points(min(24, 60/float64(all)))
	bars, err := plotter.NewBarChart(heights, width)
	if err != nil {
		return err
	}
	bars.Color, bars.LineStyle.Width = style.Color, 0
	bars.Offset = width * vg.Length(float64(s)-float64(all-1)/2)
	p.Add(bars)
	p.Legend.Add(name, bars)
	return nil
}

// powers are the ticks of a logarithmic axis: 1, 2 and 5 times a power of ten.
type powers struct{}

// Ticks implements plot.Ticker.
func (powers) Ticks(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(least)); ; e++ {
		for _, step := range []float64{1, 2, 5} {
			value := step * math.Pow(10, e)
			if value > most*1.0001 {
				return ticks
			}
			if value >= least*0.9999 {
				ticks = append(ticks, plot.Tick{Value: value, Label: tickLabel(value)})
			}
		}
	}
}

// grouped are the usual ticks, with separators.
type grouped struct{}

// Ticks implements plot.Ticker.
func (grouped) Ticks(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = tickLabel(ticks[i].Value)
		}
	}
	return ticks
}

func tickLabel(value float64) string {
	return bench.Grouped(strconv.FormatFloat(math.Round(value*1e6)/1e6, 'f', -1, 64))
}
