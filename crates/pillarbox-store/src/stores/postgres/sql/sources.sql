-- Every adopted table that anybody imports from, or did so once.
select source from pillarbox.importers
