//! Manual pages of the programs that people type, from the definitions that their `--help`
//! comes from.

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

/// Where the first word of a page is found: user commands.
const USER_COMMANDS: &str = "1";

/// Commands for who administers a system.
const ADMINISTRATION: &str = "8";

/// A page.
pub(crate) struct Page {
    /// The name of its file: `bulkhead-status.1`.
    pub(crate) name: String,
    /// Its section of the manual: 1 or 8.
    pub(crate) section: &'static str,
    /// What it says, for `man` to lay out.
    pub(crate) text: Vec<u8>,
}

/// All pages: `bulkhead` and each of its commands that help shows, and the supervisor under
/// a name that nobody else's page has.
pub(crate) fn pages() -> Result<Vec<Page>> {
    let mut bulkhead = bulkhead_cli::Arguments::command().disable_help_subcommand(true);
    bulkhead.build();
    let supervisor = supervisor::Flags::command().display_name("bulkhead-supervisor");
    let mut pages = vec![page(supervisor, ADMINISTRATION)?];
    add_with_subcommands(&bulkhead, &mut pages)?;
    Ok(pages)
}

fn add_with_subcommands(command: &Command, pages: &mut Vec<Page>) -> Result<()> {
    pages.push(page(command.clone(), USER_COMMANDS)?);
    for subcommand in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        add_with_subcommands(subcommand, pages)?;
    }
    Ok(())
}

fn page(command: Command, section: &'static str) -> Result<Page> {
    // Set line by line, and not filled as a paragraph is.
    let notes = command.get_after_long_help().or(command.get_after_help());
    let notes = notes.map(ToString::to_string);
    let has_subcommands = command.get_subcommands().any(|it| !it.is_hide_set());
    // roff leaves out an argument that is empty, and takes the next one for the date.
    let man = Man::new(command).section(section).date(" ");
    let version = concat!("Bulkhead ", env!("CARGO_PKG_VERSION"));
    let man = man.source(version).manual("Bulkhead");
    let name = man.get_filename();
    let mut text = Vec::new();
    let mut render = || -> std::io::Result<()> {
        man.render_title(&mut text)?;
        man.render_name_section(&mut text)?;
        man.render_synopsis_section(&mut text)?;
        man.render_description_section(&mut text)?;
        man.render_options_section(&mut text)?;
        if has_subcommands {
            man.render_subcommands_section(&mut text)?;
        }
        let Some(notes) = &notes else { return Ok(()) };
        let mut roff = Roff::new();
        roff.control("SH", ["NOTES"]).control("nf", []);
        for line in notes.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []).to_writer(&mut text)
    };
    render().with_context(|| name.clone())?;
    Ok(Page {
        name,
        section,
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(pages: &[Page], name: &str) -> String {
        let page = pages.iter().find(|page| page.name == name);
        let page = page.unwrap_or_else(|| panic!("there is no page {name}"));
        // As it is laid out: roff has a hyphen escaped.
        let text = String::from_utf8(page.text.clone()).unwrap();
        text.replace("\\-", "-")
    }

    /// Asks for a page of a command and of all below it, which name each of their flags.
    fn has_page(pages: &[Page], name: &str, command: &Command) -> usize {
        let text = text_of(pages, &format!("{name}.1"));
        for flag in command.get_arguments().filter_map(|it| it.get_long()) {
            assert!(text.contains(&format!("--{flag}")), "{name}: --{flag}");
        }
        let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
        let below = shown.map(|below| {
            let name = format!("{name}-{}", below.get_name());
            has_page(pages, &name, below)
        });
        1 + below.sum::<usize>()
    }

    #[test]
    fn every_command_has_a_page_and_nothing_else_has() {
        let pages = pages().unwrap();
        let count = has_page(&pages, "bulkhead", &bulkhead_cli::Arguments::command());
        assert!(count > 15, "{count}");
        assert_eq!(pages.len(), count + 1, "the one more is the supervisor's");
    }

    #[test]
    fn the_page_of_the_supervisor_names_its_flags_and_exit_codes() {
        let text = text_of(&pages().unwrap(), "bulkhead-supervisor.8");
        for flag in supervisor::Flags::command().get_arguments() {
            let flag = flag.get_long().unwrap();
            assert!(text.contains(&format!("--{flag}")), "--{flag}");
        }
        assert!(text.contains("\n.nf\n"), "{text}");
        assert!(text.contains("xit codes"), "{text}");
    }
}
