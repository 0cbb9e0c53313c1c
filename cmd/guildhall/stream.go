package main

import (
	"context"
	"strings"

	"guildhall/internal/base/output"
	"guildhall/internal/base/wire"
	botstreams "guildhall/internal/service/streams"
)

type streamCommands struct {
	Put    streamPut    `cmd:"" help:"Begin a stream of the bot's, or change which events it gets."`
	List   streamList   `cmd:"" help:"List the streams."`
	Delete streamDelete `cmd:"" help:"End a stream; events that wait for it are given up."`
}

type streamPut struct {
	connection
	Name  string   `arg:"" help:"The stream's name: 1 to 32 of a-z, 0-9 and hyphens."`
	Event []string `sep:"none" required:"" help:"An event type; repeat it, or list several with commas." placeholder:"EVENT"`
	Echo  bool     `help:"It gets what the bot's own keys did, too."`
	JSON  bool     `help:"Print one JSON object."`
}

func (c *streamPut) Run(ctx context.Context, io streams) error {
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	is, err := botstreams.Put(ctx, d, c.Name, wire.Items(c.Event...), c.Echo)
	if err != nil {
		return err
	}
	return io.result(c.JSON, is, "Stream %s gets %s.", is.Name, strings.Join(is.Events, " "))
}

type streamList struct {
	connection
	JSON bool `help:"Print a JSON array."`
}

func (c *streamList) Run(ctx context.Context, io streams) error {
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	all, err := botstreams.List(ctx, d.Reader())
	if err != nil {
		return err
	}
	if c.JSON {
		return output.JSON(io.out, all)
	}
	rows := [][]string{{"NAME", "CREATED", "FETCHED", "ECHO", "EVENTS"}}
	for _, s := range all {
		fetched, echo := "never", "no"
		if s.FetchedAt != nil {
			fetched = s.FetchedAt.String()
		}
		if s.Echo {
			echo = "yes"
		}
		rows = append(rows, []string{s.Name, s.CreatedAt.String(), fetched, echo, strings.Join(s.Events, " ")})
	}
	return output.Table(io.out, rows)
}

type streamDelete struct {
	connection
	Name string `arg:"" help:"The stream's name."`
	JSON bool   `help:"Print one JSON object."`
}

func (c *streamDelete) Run(ctx context.Context, io streams) error {
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := botstreams.Delete(ctx, d, c.Name); err != nil {
		return err
	}
	return io.result(c.JSON, map[string]any{"name": c.Name, "deleted": true}, "Stream %s has ended.", c.Name)
}
