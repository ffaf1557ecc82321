"""Audits: which detector, on which images, attacked how, with what result, to be believed?"""
